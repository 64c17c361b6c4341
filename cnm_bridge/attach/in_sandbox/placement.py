# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Decides at Join whether the link is made in the sandbox, and at Leave whether the container has ended.

A link that is made in the sandbox is unknown to libnetwork, which has three consequences:

* dockerd panics if a sandbox has two such links, was restored after a restart of dockerd, and the container is removed
  (seen with Engine 28.5). So each sandbox gets one at most.
* libnetwork numbers the links that it moves from the lowest number that is free among those it knows. If our link is
  `eth0`, its first link is to become `eth0`, too, and the start of the container fails. So a container with several
  networks gets no such link.
* Before Engine 28, dockerd fails to restore a sandbox with such a link after its own restart.
"""

from dataclasses import dataclass
from pathlib import Path
from string import digits
from typing import Final

import structlog

from cni_bridge_state import AttachMode, EndpointRecord, Phase, ProcessRecord, Store
from cnm_bridge.engine import Engine, KnownRelease, container_of_cgroup
from cnm_bridge.errors import EngineUnavailable
from cnm_bridge.kernel import Kernel, KernelError, SandboxProcess

__all__ = ["Place", "Placing"]

log = structlog.get_logger()

_OTHER_PREFIXES: Final = ("cni", "net")
"""Prefixes of links that libnetwork moves into a sandbox with a link that it does not know; the first that is free."""
_IN_SANDBOX: Final = frozenset({Phase.JOINING, Phase.JOINED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a link is made.

    Attributes:
        obstacle: Why it cannot be made in the sandbox, None if it can.
        process: The first process in the sandbox, None if it was not looked for or not found.
    """

    obstacle: str | None
    process: ProcessRecord | None = None


class Placing:
    """Knows sandboxes and their containers.

    Args:
        store: The records of the other endpoints of a sandbox.
        kernel: Finds the processes of a sandbox.
        engine: Knows the networks of a container.
        release: The engine's release.
    """

    def __init__(self, store: Store, kernel: Kernel, engine: Engine, release: KnownRelease) -> None:
        self._store = store
        self._kernel = kernel
        self._engine = engine
        self._release = release

    async def find(self, record: EndpointRecord) -> Place:
        """Return where the link of an endpoint that is being joined is made."""
        obstacle = self._find_obstacle(record)
        if obstacle is not None:
            return Place(obstacle=obstacle)
        process = await self._find_process(Path(record.sandbox_key or ""))
        may_collide = record.attachment.ifname.rstrip(digits) == record.ifname_prefix
        if record.attach_mode is AttachMode.HYBRID and may_collide:
            obstacle = await self._find_further_network(record, process)
            if obstacle is not None:
                return Place(obstacle=obstacle)
        known = None if process is None else ProcessRecord(pid=process.pid, started=process.started)
        return Place(obstacle=None, process=known)

    def _find_obstacle(self, record: EndpointRecord) -> str | None:
        if not self._kernel.is_namespace(Path(record.sandbox_key or "")):
            return "the sandbox does not exist yet"
        release = self._release.current
        if release is None:
            return "the release of the Docker Engine is not known yet"
        if not release.makes_sandbox_first:
            return f"Docker Engine {release} would not restore the sandbox after its own restart"
        if self._others(record):
            return "the sandbox has a link that this driver made in it already"
        return None

    def find_prefix(self, record: EndpointRecord) -> str:
        """Return the prefix of the name of a link that libnetwork moves into the sandbox."""
        taken = {other.attachment.ifname.rstrip(digits) for other in self._others(record)}
        return next(prefix for prefix in (record.ifname_prefix, *_OTHER_PREFIXES) if prefix not in taken)

    async def is_inhabited(self, record: EndpointRecord) -> bool:
        """Return whether processes run in the sandbox of an endpoint.

        Raises:
            KernelError: Processes cannot be read.
        """
        first = record.first_process
        if first is not None:
            return self._kernel.find_start(first.pid) == first.started
        return (await self._kernel.find_process_namespaces()).includes(Path(record.attachment.netns))

    def _others(self, record: EndpointRecord) -> list[EndpointRecord]:
        """Return the other endpoints whose link was or is being made in the same sandbox."""
        return [
            other
            for other in self._store.endpoints_in_sandbox(record.sandbox_key or "")
            if other.id != record.id and other.attach_mode is not AttachMode.MOVE and other.phase in _IN_SANDBOX
        ]

    async def _find_further_network(self, record: EndpointRecord, process: SandboxProcess | None) -> str | None:
        """Return that the container has further networks, or why that is not known; None if it has none."""
        if process is None:
            return "the first process in the sandbox is not known, so neither are the container's networks"
        container_id = container_of_cgroup(process.cgroup)
        if container_id is None:
            return f"the first process in the sandbox is in no container's cgroup but in {process.cgroup}"
        if not self._release.is_up:  # it would not answer
            return "the Docker Engine is booting, so the container's networks are not known"
        try:
            found = await self._engine.has_further_network(container_id, record.network_id)
        except EngineUnavailable as exc:
            return f"the container's networks are not known: {exc}"
        if found is None:
            return f"the Docker Engine does not list container {container_id}"
        return "the container has further networks" if found else None

    async def _find_process(self, sandbox: Path) -> SandboxProcess | None:
        try:
            return await self._kernel.find_first_process(sandbox)
        except KernelError as exc:
            log.info("container.process_unknown", error=str(exc))
            return None
