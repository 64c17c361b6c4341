# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the container that a sandbox belongs to.

Other containers may run in it, too: those with `--network container:`, and those that a process of the container runs
itself. The engine's list says which ones share the sandbox of another. It is answered without a lock, also while the
engine waits for a call of ours. A container that shares a sandbox is younger than its owner, so without an answer the
oldest one is taken; with an answer, only one that is listed.

An engine that boots starts containers and does not answer. Who such a container is, is read from dockerd's own file,
while only dockerd and runc have had the sandbox in their hands. What its networks are is not: the file is older.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from cni_bridge_spec import JsonError
from cnm_bridge.core.engine_facts import EngineContainer, container_of_cgroup
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel, SandboxProcess
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOwner:
    """The container that a sandbox belongs to, as far as it is known.

    Attributes:
        process: Its first process, None if that is not known.
        container: The container as the engine lists it, None if that is not known.
        stored: The container as dockerd has stored it, without its networks; None unless the engine boots.
        unknown: Why the container is not known.
    """

    process: SandboxProcess | None = None
    container: EngineContainer | None = None
    stored: EngineContainer | None = None
    unknown: str = ""


@dataclass(slots=True)
class SandboxOwners:
    """Finds owners of sandboxes."""

    kernel: Kernel
    engine: Engine
    version: KnownVersion

    async def find(self, sandbox: Path) -> SandboxOwner:
        """Return the owner of a sandbox.

        A container that starts is alone in its sandbox. So all processes of the host are looked at only if the latest
        one turns out not to be the owner's.
        """
        try:
            latest = await self.kernel.find_latest_first_process(sandbox)
            if latest is None:
                return SandboxOwner(unknown="the first process in the sandbox is not known")
            listed, unknown = await self._list([latest])
            if listed and not listed[0].shares_sandbox:
                return choose_owner([latest], listed, unknown)
            processes = await self.kernel.find_first_processes(sandbox)
        except KernelError as exc:
            log.info("container.process_unknown", error=str(exc))
            return SandboxOwner(unknown="the first process in the sandbox is not known")
        if listed is not None or container_of_cgroup(latest.cgroup) is None:
            listed, unknown = await self._list(processes)
        owner = choose_owner(processes, listed, unknown)
        return owner if self.version.is_up else await self._with_stored(owner)

    async def _with_stored(self, owner: SandboxOwner) -> SandboxOwner:
        """Return an owner with what dockerd has stored of its container, if that can be read."""
        container_id = None if owner.process is None else container_of_cgroup(owner.process.cgroup)
        if owner.process is None or container_id is None:
            return owner
        try:
            stored = await self.kernel.read_container(owner.process.pid, container_id)
            return owner if stored is None else replace(owner, stored=EngineContainer.from_stored(stored))
        except (JsonError, KernelError) as exc:
            log.info("container.identity_unreadable", container_id=container_id, error=str(exc))
            return owner

    async def _list(self, processes: Sequence[SandboxProcess]) -> tuple[Sequence[EngineContainer] | None, str]:
        """Return the containers of processes that the engine lists, and why there are none; None without an answer."""
        found = {container_of_cgroup(process.cgroup): process.cgroup for process in processes}
        ids = sorted(container_id for container_id in found if container_id is not None)
        if not ids:
            return None, f"the first process in the sandbox is in no container's cgroup but in {found[None]}"
        await self.version.wait_looked()
        if not self.version.is_up:  # it would not answer
            return None, "the Docker Engine is booting"
        try:
            listed = await self.engine.find_starting(ids)
        except (EngineUnavailable, JsonError) as exc:
            return None, str(exc)
        return listed, "" if listed else f"the Docker Engine does not list container {ids[0]}"


def choose_owner(
    processes: Sequence[SandboxProcess], listed: Sequence[EngineContainer] | None, unknown: str
) -> SandboxOwner:
    """Return which of the containers in a sandbox it belongs to; pure.

    Args:
        processes: The first process of each, the oldest first.
        listed: Those containers of the processes that the engine lists, None without an answer.
        unknown: Why there are none.
    """
    by_id = {container.id: container for container in listed or ()}
    own = [
        (process, container_id)
        for process in processes
        for container_id in [container_of_cgroup(process.cgroup)]
        if listed is None or (container_id in by_id and not by_id[container_id].shares_sandbox)
    ]
    if not own:
        return SandboxOwner(unknown=unknown or "of its containers, the Docker Engine lists only those that share it")
    first, container_id = own[0]
    if any(process.started == first.started and other != container_id for process, other in own):
        return SandboxOwner(unknown=unknown or "several containers that started at the same time are in the sandbox")
    container = None if container_id is None else by_id.get(container_id)
    return SandboxOwner(process=first, container=container, unknown="" if container else unknown)
