# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Decides at Join whether the link is made in the sandbox, and at Leave whether processes still run there.

A link that is made in the sandbox is unknown to libnetwork, which has three consequences:

* dockerd panics if a sandbox with two such links was restored after a restart of dockerd, and the container is removed
  (seen with Engine 28.5). So each sandbox gets one at most.
* libnetwork numbers the links that it moves from the lowest number that is free among those it knows. If our link is
  `eth0`, its first link is to become `eth0`, too, and the start of the container fails. So a container with several
  networks gets no such link, nor one whose networks are not known, as while dockerd boots, unless the link cannot be
  moved: a container on one network starts with it.
* Before Engine 28, dockerd fails to restore a sandbox with such a link after its own restart.

That needs the container that the sandbox belongs to. Other containers may run in it, too (`--network container:`). The
engine's list, which it answers without a lock, says which ones share the sandbox of another. A container that shares a
sandbox is younger than its owner, so without an answer the oldest one is taken; with an answer, only a listed one.

An engine that boots starts containers and does not answer. Who such a container is, is read from dockerd's own file,
while only dockerd and runc have had the sandbox in their hands. What its networks are is not: the file is older.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from string import digits
from typing import Final

import structlog

from cni_bridge_spec import JsonError, JsonObject
from cni_bridge_state import EndpointRecord, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.engine_facts.container import EngineContainer, container_of_cgroup, link_local_addresses
from cnm_bridge.core.errors import EngineUnavailable, KernelError, NamespaceMissing, Refused, endpoint_option
from cnm_bridge.core.link_state import IpInterface
from cnm_bridge.core.lists.guard import is_guarded
from cnm_bridge.core.lists.plugins import find_unsuitable
from cnm_bridge.core.options.cni_options import parse_options
from cnm_bridge.core.planning.identity import with_identity
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel, SandboxProcess, is_namespace
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOwner:
    """The container that a sandbox belongs to, as far as it is known."""

    process: SandboxProcess | None = None
    """Its first process."""
    container: EngineContainer | None = None
    """The container as the engine lists it."""
    stored: EngineContainer | None = None
    """The container as dockerd has stored it, without its networks; None unless the engine boots."""
    unknown: str = ""
    """Why the container is not known."""

    @property
    def first_process(self) -> ProcessRecord | None:
        """Its first process, as it is stored."""
        process = self.process
        return None if process is None else ProcessRecord(pid=process.pid, started=process.started)


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

    The first processes of the containers are given, the oldest first; `listed` are those of these containers that the
    engine lists, None without an answer. `unknown` says why there are none.
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


_OTHER_PREFIXES: Final = ("cni", "net")
"""Prefixes for links that libnetwork moves into a sandbox beside one that it does not know; the first free one."""

_IN_SANDBOX: Final = frozenset({Phase.JOINING, Phase.JOINED})

_OPEN_AT_FIRST: Final = "the container runs already, and the link would be open until the plugin egress has run"
_GIVE_A_NAME: Final = endpoint_option("com.docker.network.endpoint.ifname", "NAME")
"""How a user gives a link a name that no other link of the container has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a link is made."""

    obstacle: str | None
    """Why it cannot be made in the sandbox, None if it can."""
    owner: SandboxOwner
    """The container that the sandbox belongs to, if it was looked for."""
    template: JsonObject | None = None
    """Where in `args` the plugins receive its identity, None for nowhere."""
    link_local: tuple[IpInterface, ...] = ()
    """The addresses of `--link-local-ip`, which Docker adds only to a link that it moves."""

    def identify(self, record: EndpointRecord) -> EndpointRecord:
        """Return a record whose plugins receive the identity of the container, if that is requested and possible.

        Raises `Refused` if it is required, and not known.
        """
        request = record.attachment.identity
        if request is None:
            return record
        container = self.owner.container or self.owner.stored
        if container is not None:
            identified = with_identity(record.attachment, request, container, self.template)
            if identified.left_out:
                log.warning("endpoint.identity_incomplete", endpoint_id=record.id, left_out=identified.left_out)
            return replace(record, attachment=identified.attachment)
        if request.is_required:
            raise Refused(
                f"cni.identity-required: the container's identity is not known: {self.owner.unknown}; start the "
                "container again, or leave out cni.identity-required"
            )
        log.info("endpoint.unidentified", endpoint_id=record.id, reason=self.owner.unknown)
        return record


@dataclass(frozen=True, slots=True)
class PlaceFinder:
    """Knows sandboxes and their containers."""

    store: Store
    kernel: Kernel
    owners: SandboxOwners
    version: KnownVersion

    async def find(self, record: EndpointRecord) -> Place:
        """Return where the link of an endpoint that is being joined is made."""
        sandbox = record.sandbox
        if not is_namespace(sandbox):
            reason = "the sandbox does not exist yet"
            return Place(obstacle=reason, owner=SandboxOwner(unknown=reason))
        await self.version.wait_looked()
        obstacle = self._find_obstacle(record)
        may_collide = record.attachment.ifname.rstrip(digits) == record.ifname_prefix
        needs_networks = obstacle is None and record.attachment.mode.falls_back_to_move and may_collide
        owner = SandboxOwner(unknown="it was not looked for")
        if obstacle is None or record.attachment.identity is not None:
            owner = await self.owners.find(sandbox)
        if needs_networks:
            if owner.container is None:
                can_move = find_unsuitable(Endpoint(record).network) is None
                obstacle = f"the container's networks are not known: {owner.unknown}" if can_move else None
            elif owner.container.has_further_network(record.network_id):
                obstacle = "the container has further networks"
            elif owner.container.is_running and find_unsuitable(Endpoint(record).network) is None:
                obstacle = "the container runs already, and only Docker knows whether --link-local-ip is given"
        is_running = owner.container is not None and owner.container.is_running
        if obstacle is None and is_running and is_guarded(Endpoint(record).network):
            obstacle = _OPEN_AT_FIRST
        network = self.store.find_network(record.network_id)
        return Place(
            obstacle=obstacle,
            owner=owner,
            template=None if network is None else parse_options(network.options).identity_args,
            link_local=await self._find_link_local(record, owner) if obstacle is None else (),
        )

    async def _find_link_local(self, record: EndpointRecord, owner: SandboxOwner) -> tuple[IpInterface, ...]:
        """Return the addresses of `--link-local-ip`; none, if it is not known which there are."""
        container_id = None if owner.process is None else container_of_cgroup(owner.process.cgroup)
        if owner.process is None or container_id is None:
            return ()
        network = self.store.find_network(record.network_id)
        try:
            container = owner.container
            if container is not None and (container.is_running or not container.has_given_addresses):
                return ()
            stored = await self.kernel.read_container(owner.process.pid, container_id) or {}
            return link_local_addresses(stored, record.network_id, None if network is None else network.name)
        except (JsonError, KernelError, ValueError) as exc:
            log.info("container.addresses_unknown", endpoint_id=record.id, error=str(exc))
            return ()

    def _find_obstacle(self, record: EndpointRecord) -> str | None:
        version = self.version.current
        if version is None:
            return "the version of the Docker Engine was not known"
        if not version.makes_sandbox_first:
            return f"Docker Engine {version} would not restore the sandbox after its own restart"
        if self._others(record):
            return "the sandbox has a link that this driver made in it already"
        return None

    def find_prefix(self, record: EndpointRecord) -> str:
        """Return the prefix of the name of a link that libnetwork moves into the sandbox."""
        taken = {other.attachment.ifname.rstrip(digits) for other in self._others(record)}
        return next(prefix for prefix in (record.ifname_prefix, *_OTHER_PREFIXES) if prefix not in taken)

    async def is_inhabited(self, record: EndpointRecord) -> bool:
        """Return whether processes run in the sandbox of an endpoint; `KernelError` if that cannot be read."""
        if record.first_process is not None:
            return self.kernel.find_start(record.first_process.pid) == record.first_process.started
        with suppress(NamespaceMissing):
            return await self.kernel.is_inhabited(Path(record.attachment.netns))
        return False

    def _others(self, record: EndpointRecord) -> list[EndpointRecord]:
        """Return the other endpoints whose link was or is being made in the same sandbox."""
        return [
            other
            for other in self.store.endpoints_in_sandbox(record.sandbox)
            if other.id != record.id and other.attachment.mode.in_sandbox and other.phase in _IN_SANDBOX
        ]


def why_no_link(record: EndpointRecord) -> str:
    """Return why no link can be made there; with *direct*, also what to do."""
    reason = f"the sandbox is gone, or has a link {record.attachment.ifname} already"
    if record.attachment.mode.falls_back_to_move:
        return reason
    return f"{reason}; if so, give this one another name: {_GIVE_A_NAME}"


def refuse_to_move(record: EndpointRecord, reason: str) -> None:
    """Refuse an endpoint whose link cannot be made in the sandbox, unless it can be moved there."""
    refused = f"CNI configuration {record.attachment.network} cannot be attached in the sandbox"
    if not record.attachment.mode.falls_back_to_move:
        raise Refused(f"{refused}: {reason}; its link cannot be moved there: Docker does not know its addresses")
    unsuitable = find_unsuitable(Endpoint(record).network)
    if unsuitable is not None:
        raise Refused(
            f"{refused}: {reason}; its link cannot be moved there because of {unsuitable}. On several networks, give "
            f"this link a name of its own: {_GIVE_A_NAME}"
        )
    if record.attachment.ifname != f"{record.ifname_prefix}0":
        raise Refused(
            f"a link called {record.attachment.ifname} cannot be made in the sandbox: {reason}; leave out "
            "com.docker.network.endpoint.ifname for it"
        )
