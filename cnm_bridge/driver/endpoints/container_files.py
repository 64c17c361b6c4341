# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Edits the files that Docker mounts in a container: its own name in /etc/hosts, and name servers in resolv.conf.

From Engine 28.1 on, EndpointOperInfo comes between Join and the start of the process. Docker has written the files by
then. The call comes several times, so a passing failure is followed by another attempt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from typing import Final

import structlog

from cni_bridge_state import AttachMode, EndpointId, EndpointRecord, NotJoined, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.container_files import (
    ContainerFile,
    Edit,
    add_server,
    correct_addresses,
    edit_resolv_conf,
    has_anything,
    in_turn,
    remove_addresses,
    remove_server,
)
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link.endpoint_replies import known_addresses
from cnm_bridge.core.lists.guard import RESPONDER, RESPONDER_IPV6, is_guarded
from cnm_bridge.system.kernel import Kernel, SandboxProcess
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()

_IPV4: Final = 4
_NO_PROCESS: Final = "no process of the container is visible"
_NOT_DOCKERS: Final[Mapping[ContainerFile, str]] = {
    ContainerFile.RESOLV_CONF: "the container's /etc/resolv.conf is not the file that Docker mounts there"
}
"""Why a file of the user stays. Only `cni.dns` and guarded networks ask for a change of such a file."""


@dataclass(slots=True)
class _Progress:
    """How far the files of one endpoint's container are.

    Attributes:
        process: A process of the container, None if it is not known.
        done: The files in which nothing is left to do.
        errors: Why the previous attempt failed.
    """

    process: SandboxProcess | None = None
    done: set[ContainerFile] = field(default_factory=set)
    errors: dict[ContainerFile, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    """Edits the files of containers, each once for each endpoint."""

    store: Store
    kernel: Kernel
    version: KnownVersion
    _progress: dict[EndpointId, _Progress] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.store.when_removed(self.forget)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Forget an endpoint that leaves its sandbox, or is gone."""
        self._progress.pop(endpoint_id, None)

    async def apply(self, endpoint_id: EndpointId) -> None:
        """Edit the files of an endpoint's container; a failure is logged."""
        record = self.store.find_endpoint(endpoint_id)
        if record is None or record.phase is not Phase.JOINED:
            return
        edits = self._edits(record)
        if not edits:
            return
        progress = self._progress.setdefault(endpoint_id, _Progress())
        for file, edit in edits.items():
            if file not in progress.done:
                obstacle = await self._try(record, progress, file, edit)
                if self._progress.get(endpoint_id) is not progress:  # it has left meanwhile
                    return
                if obstacle and obstacle != progress.errors.get(file):
                    log.warning("endpoint.file_not_edited", endpoint_id=endpoint_id, file=file.value, error=obstacle)
                progress.errors[file] = obstacle
                progress.done |= set() if obstacle else {file}

    async def withdraw(self, endpoint_id: EndpointId) -> None:
        """Remove what an endpoint that leaves its sandbox has in a running container's files, and no other one needs.

        Errors are only logged: nothing may block a Leave.
        """
        record = self.store.find_endpoint(endpoint_id)
        if record is None or record.phase is not Phase.JOINED:
            return
        try:
            edits = self._withdrawals(record)
            if not edits:
                return
            process = self._progress.get(endpoint_id, _Progress()).process
            if process is None:
                process = await self.kernel.find_container_process(record.sandbox)
            if process is not None and self.kernel.find_start(process.pid) == process.started:
                for file, edit in edits.items():
                    await self.kernel.edit_container_file(process, file, edit)
        except (KernelError, NotJoined) as exc:  # Docker has removed the sandbox, or the container has just ended
            log.info("endpoint.files_not_withdrawn", endpoint_id=endpoint_id, error=str(exc))

    @property
    def _mistakes_addresses(self) -> bool:
        version = self.version.current
        return version is None or version.mistakes_addresses

    def _edits(self, record: EndpointRecord) -> Mapping[ContainerFile, Edit]:
        """Return how the files of an endpoint's container have to be edited."""
        edits: dict[ContainerFile, Edit] = {}
        endpoint, option = Endpoint(record), record.attachment.dns
        if self._mistakes_addresses:
            edits[ContainerFile.HOSTS] = partial(correct_addresses, address=_address(endpoint))
        of_resolv_conf: list[Edit] = []
        if option is not None and endpoint.result is not None and has_anything(endpoint.result.dns, option):
            of_resolv_conf.append(
                partial(edit_resolv_conf, dns=endpoint.result.dns, option=option, endpoint_id=record.id)
            )
        if self._needs_responder(endpoint):
            of_resolv_conf.append(partial(add_server, server=_responder(endpoint)))
        if of_resolv_conf:
            edits[ContainerFile.RESOLV_CONF] = partial(in_turn, edits=of_resolv_conf)
        return edits

    def _withdrawals(self, record: EndpointRecord) -> Mapping[ContainerFile, Edit]:
        """Return how the files are edited when an endpoint leaves.

        Raises:
            NotJoined: Its sandbox is not known.
        """
        edits: dict[ContainerFile, Edit] = {}
        endpoint = Endpoint(record)
        if self._mistakes_addresses:
            edits[ContainerFile.HOSTS] = partial(remove_addresses, addresses=record.addresses)
        if self._needs_responder(endpoint):
            joined = (one for one in self.store.endpoints_in_sandbox(record.sandbox) if one.phase is Phase.JOINED)
            if not any(self._needs_responder(Endpoint(one)) for one in joined if one.id != record.id):
                edits[ContainerFile.RESOLV_CONF] = partial(remove_server, server=_responder(endpoint))
        return edits

    def _needs_responder(self, endpoint: Endpoint) -> bool:
        """Return whether Docker's name server does not ask the responder of a guarded endpoint's network."""
        network = self.store.find_network(endpoint.record.network_id)
        return network is not None and network.internal and is_guarded(endpoint.network)

    async def _try(self, record: EndpointRecord, progress: _Progress, file: ContainerFile, edit: Edit) -> str:
        """Edit a file of an endpoint's container; return the obstacle, "" if there is none."""
        try:
            if progress.process is None:
                progress.process = await self.kernel.find_container_process(record.sandbox)
            if progress.process is None:
                return _NO_PROCESS
            edited = await self.kernel.edit_container_file(progress.process, file, edit)
        except (KernelError, NotJoined) as exc:
            progress.process = None  # it may have ended, such as one of `docker exec`
            return str(exc)
        if edited is None:
            return _NOT_DOCKERS.get(file, "")
        if edited.content is not None:
            log.info("endpoint.file_edited", endpoint_id=record.id, file=file.value)
        return edited.obstacle


def _responder(endpoint: Endpoint) -> str:
    """Return the name server of a guarded endpoint, of a family that it has."""
    return RESPONDER if any(one.version == _IPV4 for one in known_addresses(endpoint)) else RESPONDER_IPV6


def _address(endpoint: Endpoint) -> IPv4Address | None:
    """Return the IPv4 address that Docker knows of an endpoint, None if it knows none."""
    requested = endpoint.record.requested.address
    if requested is not None or endpoint.record.attachment.mode is AttachMode.DIRECT:
        return None if requested is None else requested.ip
    known = (address.ip for address in known_addresses(endpoint))
    return next((address for address in known if isinstance(address, IPv4Address)), None)
