# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Refuses containers of guarded networks that can change the host's network, by what dockerd stores of them."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import EndpointRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts.container import container_of_cgroup, find_privileges
from cnm_bridge.core.engine_facts.engine import EngineDescription, find_remapped_group
from cnm_bridge.core.errors import KernelError, Refused
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel, read_host_config
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()

_REMEDY: Final = "make the guarded network with -o cni.egress.net-admin=allow"


@dataclass(slots=True)
class Privileges:
    """What the containers of guarded networks may do."""

    store: Store
    engine: Engine
    kernel: Kernel
    version: KnownVersion
    _described: tuple[int, EngineDescription] | None = field(default=None, init=False)

    async def refuse(self, container_id: str, network: str) -> None:
        """Refuse a container of a guarded network that can change the host's network, or of which that is not known.

        Raises `EngineUnavailable` if the engine does not answer.
        """
        engine = await self._describe()
        await _refuse(Path(engine.data_directory), container_id, network, remaps_users=engine.remaps_users)

    async def refuse_while_booting(self, record: EndpointRecord, network: str) -> None:
        """Refuse such a container while the engine does not answer: it boots, or hangs.

        The container is known by the first process in its sandbox, which waits for its network, and the engine's
        directory from its last answer. Before Engine 28 there is no process yet: then only the log tells.
        """
        if self.version.current is not None and not self.version.current.makes_sandbox_first:
            log.warning("endpoint.privileges_unknown", endpoint_id=record.id, reason="the Docker Engine is booting")
            return
        directory = (self.store.engine_identity() or "").partition(" ")[2]
        try:
            process = await self.kernel.find_latest_first_process(record.sandbox)
        except KernelError as exc:
            raise _unknown(f"its first process is not known: {exc}") from exc
        container_id = container_of_cgroup(process.cgroup) if process is not None else None
        if container_id is None or not directory:
            raise _unknown("neither its first process nor the engine tells which container it is")
        remaps_users = await asyncio.to_thread(_remaps_users, directory)
        await _refuse(Path(directory), container_id, network, remaps_users=remaps_users)

    async def _describe(self) -> EngineDescription:
        """Return what the engine says of itself; one that stays up is asked once, which saves 10 ms."""
        ups = self.version.ups
        if not self.version.is_up:
            return await self.engine.describe()
        if self._described is None or self._described[0] != ups:
            self._described = ups, await self.engine.describe()
        return self._described[1]


def _remaps_users(directory: str) -> bool:
    """Return whether the directory is that of an engine with `userns-remap`, by its name and its group."""
    group = find_remapped_group(directory)
    try:
        return group is not None and Path(directory).stat().st_gid == group != 0
    except OSError:
        return False


async def _refuse(directory: Path, container_id: str, network: str, *, remaps_users: bool) -> None:
    document = await asyncio.to_thread(read_host_config, directory, container_id)
    if document is None:
        raise _unknown(f"{directory}/containers/{container_id}/hostconfig.json cannot be read")
    if options := ", ".join(find_privileges(document, remaps_users=remaps_users)):
        raise Refused(
            f"the container has {options}, with which it can change the host's network and so leave the guarded "
            f"network {network}: start it without, or in a user namespace (userns-remap of dockerd), or {_REMEDY}"
        )


def _unknown(reason: str) -> Refused:
    return Refused(
        f"it is not known whether the container can change the host's network ({reason}): start it again when Docker "
        f"runs, or {_REMEDY}, if it may"
    )
