# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ways past the allow-list of a guarded network: an open network of the same container, and NET_ADMIN.

Docker tells a driver nothing of a container's other networks and privileges, so the engine is asked, but not while it
boots: then open networks are found when it runs. A network that root connects later is found a moment after the
engine's event, or by the next round of comparison, and the container is taken off it if the guarded network says so.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, NetworkId, Phase
from cni_bridge_state.store import Store
from cni_invoker import CniError
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import BridgeError, EngineSilent, EngineUnavailable, Refused
from cnm_bridge.core.lists.guard import OTHER_NETWORKS, EgressOptions, OtherNetworks, is_guarded
from cnm_bridge.core.options.cni_options import parse_options
from cnm_bridge.driver.networks.plan_endpoint import EndpointPlanner
from cnm_bridge.driver.networks.privileges import Privileges
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()

_PATIENCE_S: Final = 10.0
"""How long Docker, which waits for the reply, is asked."""
_BOOTS_AFTER_S: Final = 2.0
"""An engine that is not known to be up, and is silent for this long, is booting."""
_SILENT_FOR_S: Final = 5.0
"""How long it is not asked again then."""
_AT_ONCE: Final = 100
"""How many containers one query is about."""
_LISTED_S: Final = 0.3
"""How long after its event Docker may list a network of a container."""
_IN_SANDBOX: Final = frozenset({Phase.JOINING, Phase.JOINED})


@dataclass(slots=True)
class WaysOut:
    """Refuses ways out when a container joins; finds networks that were connected later, and closes them."""

    store: Store
    engine: Engine
    planner: EndpointPlanner
    version: KnownVersion
    privileges: Privileges
    _found: dict[EndpointId, tuple[str, ...]] = field(default_factory=dict, init=False)
    _guarded: set[EndpointId] = field(default_factory=set, init=False)
    _connected: asyncio.Queue[str] = field(default_factory=asyncio.Queue, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held while it is found out whether the engine boots."""
    _silent_until: float = field(default=0.0, init=False)
    """Until when its last silence counts, in the event loop's time."""

    def __post_init__(self) -> None:
        self.store.when_removed(self._forget)

    @property
    def found(self) -> Mapping[EndpointId, tuple[str, ...]]:
        """Guarded endpoint → the names of its container's networks that are a way out, as they were found last."""
        return MappingProxyType(self._found)

    async def refuse(self, record: EndpointRecord) -> None:
        """Refuse an endpoint that is being joined if its container would be guarded and have a way out.

        The record has the sandbox. `Refused` also says that the container can change the host's network, or that the
        engine does not answer.
        """
        beside = [
            other
            for other in self.store.endpoints_in_sandbox(record.sandbox)
            if other.id != record.id and other.phase in _IN_SANDBOX
        ]
        if not is_guarded(Endpoint(record).network):
            guarded = [other for other in beside if is_guarded(Endpoint(other).network)]
            if guarded and not record.internal:
                self._refuse([self._name(record)], guarded)
            return
        self._guarded.add(record.id)
        names = [self._name(other) for other in beside if _is_open(other)]
        self._refuse(dict.fromkeys([*names, *await self._ask(record)]), [record])

    def note_connected(self, container_id: str) -> None:
        """Note that a container was connected to a network; costs nothing while no container is guarded."""
        if self._guarded:
            self._connected.put_nowait(container_id)

    async def look_when_connected(self) -> None:
        """Look at the containers that are noted, until cancelled."""
        while True:
            containers = {await self._connected.get()}
            await asyncio.sleep(_LISTED_S)
            while not self._connected.empty():
                containers.add(self._connected.get_nowait())
            try:
                await self.look(containers)
            except Exception:  # a bug in background work is logged, and must not end the daemon
                log.exception("reconcile.bug")

    async def look(self, containers: Collection[str] | None = None) -> None:
        """Look for ways out, log new ones, and close those of networks that want it.

        The IDs of containers may be given; by default those of all guarded endpoints are looked at.
        """
        async with self._looking:
            if containers is None:
                self._guarded.clear()
                self._guarded.update(
                    record.id for record in self.store.endpoints() if is_guarded(Endpoint(record).network)
                )
            try:
                found = [one async for one in self._find(containers)] if self._guarded else []
            except EngineUnavailable as exc:
                log.info("container.networks_unknown", error=str(exc))
                return
            now = {} if containers is None else dict(self._found)
            for container, records, networks in found:
                is_closed = any(self._options(record).other_networks is OtherNetworks.DISCONNECT for record in records)
                left = await self._close(container, records[0].id, networks) if is_closed else networks
                names = tuple(network.name for network in left)
                for endpoint_id in (record.id for record in records):
                    if names and self._found.get(endpoint_id) != names:
                        log.warning("endpoint.way_out", endpoint_id=endpoint_id, networks=names)
                    now[endpoint_id] = names
            self._found.clear()
            self._found.update({endpoint_id: names for endpoint_id, names in now.items() if names})

    async def _close(
        self, container: EngineContainer, endpoint_id: EndpointId, networks: Iterable[EngineNetwork]
    ) -> tuple[EngineNetwork, ...]:
        left = []
        for network in networks:
            try:
                await self.engine.disconnect(network.id, container.id)
            except EngineUnavailable as exc:
                left.append(network)
                log.warning(
                    "endpoint.way_out_not_closed", endpoint_id=endpoint_id, network=network.name, error=str(exc)
                )
            else:
                log.warning("endpoint.way_out_closed", endpoint_id=endpoint_id, network=network.name)
        return tuple(left)

    def _refuse(self, names: Collection[str], guarded: Iterable[EndpointRecord]) -> None:
        """Refuse ways out, or log them where the guarded network allows them."""
        shown = ", ".join(names)
        for record in guarded if shown else ():
            if not self._allows(record):
                are, them = ("is", "it") if len(names) == 1 else ("are", "them")
                raise Refused(
                    f"the container would be on the guarded network {self._name(record)} and on {shown}, which {are} "
                    f"neither guarded nor internal, so that it could reach everything: take the container off {them} "
                    "(docker network disconnect; if it runs, docker stop first, because Docker lists a refused network "
                    f"all the same), make {them} --internal, or make the guarded network with -o {OTHER_NETWORKS}=allow"
                )
            log.warning("endpoint.way_out_allowed", endpoint_id=record.id, networks=shown)

    async def _ask(self, record: EndpointRecord) -> tuple[str, ...]:
        """Return the open networks that the engine knows of the container of an endpoint that is being joined.

        Raises `Refused` if the container can change the host's network, or the engine does not answer.
        """
        try:
            if await self._is_booting():
                log.warning("endpoint.ways_out_unknown", endpoint_id=record.id, reason="the Docker Engine is booting")
                if not self._options(record).allows_net_admin:
                    await self.privileges.refuse_while_booting(record, self._name(record))
                return ()
            async with asyncio.timeout(_PATIENCE_S):
                network = await self.engine.find_network(record.network_id)
                endpoint = network.endpoints.get(record.id) if network else None
                container = await self.engine.find_container_named(endpoint.name) if endpoint else None
                if container is None:
                    raise Refused(
                        f"the Docker Engine lists no container with the endpoint {record.id}, so it is not known "
                        "whether it has a way past the allow-list; start the container again"
                    )
                if not self._options(record).allows_net_admin:
                    await self.privileges.refuse(container.id, self._name(record))
                return tuple(other.name for other in await self._open_networks(container, {record.network_id}, {}))
        except (EngineUnavailable, TimeoutError) as exc:
            raise Refused(
                f"the Docker Engine did not say which other networks the container has ({str(exc) or 'too late'}), and "
                "one may be a way past the allow-list; start the container again"
            ) from exc

    async def _is_booting(self) -> bool:
        """Return whether the engine is booting, as far as is known: it accepts connections, and does not answer.

        An engine that is not known to be up is asked, because the daemon may just have started; once for all that wait.
        Raises `EngineUnavailable` if it cannot be reached, or refuses the question.
        """
        await self.version.wait_looked()
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if self.version.is_up or now < self._silent_until:
                return not self.version.is_up
            try:
                async with asyncio.timeout(_BOOTS_AFTER_S):
                    await self.engine.version()
            except (EngineSilent, TimeoutError):
                self._silent_until = asyncio.get_running_loop().time() + _SILENT_FOR_S
                return not self.version.is_up
            return False

    async def _find(
        self, containers: Collection[str] | None
    ) -> AsyncIterator[tuple[EngineContainer, Sequence[EndpointRecord], tuple[EngineNetwork, ...]]]:
        """Yield the guarded containers, each with its guarded endpoints and its ways out."""
        if containers is None:
            networks = {record.network_id for record in self._joined(self._guarded)}
            described = [await self.engine.find_network(network_id) for network_id in networks]
            of_networks = [endpoint for network in described if network for endpoint in network.endpoints.values()]
            containers = {
                endpoint.container_id
                for endpoint in of_networks
                if endpoint.container_id and endpoint.id in self._guarded
            }
        ids = [*containers]
        for first in range(0, len(ids), _AT_ONCE):
            known: dict[str, EngineNetwork | None] = {}  # described after these containers are listed
            for container in await self.engine.find_starting(ids[first : first + _AT_ONCE]):
                records = self._joined(map(EndpointId, container.endpoint_ids & self._guarded))
                networks = {record.network_id for record in records}
                if records:
                    listed = await self._open_networks(container, networks, known)
                    yield container, records, tuple(one for one in listed if one.has_container(container.id))

    def _joined(self, endpoint_ids: Iterable[EndpointId]) -> Sequence[EndpointRecord]:
        """Return the joined ones of guarded endpoints, without those of networks that allow ways out."""
        records = map(self.store.find_endpoint, endpoint_ids)
        return [
            record
            for record in records
            if record is not None and record.phase is Phase.JOINED and not self._allows(record)
        ]

    async def _open_networks(
        self, container: EngineContainer, guarded: Collection[str], known: dict[str, EngineNetwork | None]
    ) -> tuple[EngineNetwork, ...]:
        """Return the networks listed for a container that are neither internal nor guarded, as those in `guarded` are.

        `known` has the networks that the engine has described already, by ID or name.
        """
        found = []
        for name, network_id in container.networks.items():
            for key in filter(None, (network_id, name)):  # a network that was made again has another ID
                if key not in known:
                    known[key] = await self.engine.find_network(key)
                network = known[key]
                if network is not None:
                    found += [network] if network.id not in guarded and await self._is_open(network) else []
                    break
        return tuple(found)

    async def _is_open(self, network: EngineNetwork) -> bool:
        if network.internal or self.store.find_network(NetworkId(network.id)) is None:
            return not network.internal
        try:
            return not is_guarded((await self.planner.resolve(NetworkId(network.id)))[1])
        except (BridgeError, CniError):  # no container can join it
            return True

    def _allows(self, record: EndpointRecord) -> bool:
        return self._options(record).other_networks is OtherNetworks.ALLOW

    def _options(self, record: EndpointRecord) -> EgressOptions:
        network = self.store.find_network(record.network_id)
        return EgressOptions() if network is None else parse_options(network.options).egress

    def _name(self, record: EndpointRecord) -> str:
        """Return the name of an endpoint's network in Docker, or that of its list."""
        network = self.store.find_network(record.network_id)
        return (network.name if network else None) or record.attachment.network

    def _forget(self, endpoint_id: EndpointId) -> None:
        self._found.pop(endpoint_id, None)
        self._guarded.discard(endpoint_id)


def _is_open(record: EndpointRecord) -> bool:
    return not record.internal and not is_guarded(Endpoint(record).network)
