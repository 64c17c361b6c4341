# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the network configuration lists of networks."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog

from cni_bridge_spec import JsonObject
from cni_bridge_state import NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cni_invoker import CniError, ConfigurationDirectories, ConfigurationIndex, NetworkConfigurationList, Runtime
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.errors import BridgeError, Refused, network_option
from cnm_bridge.core.lists.guard import is_guarded, with_guard
from cnm_bridge.core.options.cni_options import Options, parse_options
from cnm_bridge.core.planning.plan import configuration_digest
from cnm_bridge.driver.networks.engine_import import EngineImport, NetworkNameResolver
from cnm_bridge.system.scheduling import KeyedLocks, TimeSlice

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class NetworkLists:
    """Finds lists by network or by name, as they are now."""

    store: Store
    directories: ConfigurationDirectories
    runtime: Runtime
    name_resolver: NetworkNameResolver
    engine_import: EngineImport
    locks: KeyedLocks[NetworkId]
    _seen: ConfigurationIndex | None = field(default=None, init=False)

    def index(self) -> ConfigurationIndex:
        """Return the current configurations; unusable ones are logged once after each change."""
        index = self.directories.index()
        if index is not self._seen:
            self._seen = index
            for problem in index.problems:
                log.warning("configuration.unusable", problem=str(problem))
            for shadowed in index.shadowed:
                log.warning("configuration.shadowed", name=shadowed.name, file=str(shadowed.file), by=str(shadowed.by))
        return index

    async def find(self, network: NetworkRecord, options: Options) -> NetworkConfigurationList:
        """Return the list of a network.

        Raises:
            Refused: Its name is not known in time, or there is no list of that name.
            CniError: The list named with `cni.network` no longer exists.
        """
        bound = options.configuration or network.configuration
        if bound is not None:
            return self.index().find(bound)
        name = network.name or await self.name_resolver.wait(network.id)
        try:
            return self.index().find(name)
        except ConfigurationNotFound as exc:
            found = await self._bind_to_compose_name(network)
            if found is not None:
                return found
            raise Refused(
                f"network {name} was made without -o cni.network, so it takes the CNI configuration of its own name: "
                f"{exc}. Add one of that name, or make the network again with {network_option('cni.network', 'NAME')}"
            ) from exc

    async def _bind_to_compose_name(self, network: NetworkRecord) -> NetworkConfigurationList | None:
        """Bind a network to the configuration of its name in the compose file; return None if there is none.

        Compose puts the project's name before the network's: `blue` becomes `shop_blue`.
        """
        described = await self.engine_import.ask(network.id)
        name = None if described is None else described.compose_name
        if name is None:
            return None
        with suppress(ConfigurationNotFound):
            found = self.index().find(name)
            async with self.locks.hold(network.id):
                record = self.store.find_network(network.id)
                if record is not None:
                    await self.store.put_network(replace(record, configuration=name))
            log.info("network.bound", network_id=network.id, name=network.name, configuration=name)
            return found
        return None

    async def find_named(self, name: str) -> NetworkConfigurationList:
        """Return the list of this name that is on disk now, in a version that all its plugins support.

        It guards if one of its networks is guarded by its options: DEL of `egress` does nothing for all others.

        Raises:
            CniError: It does not exist, or its plugins have no version in common.
            Refused: It cannot be guarded any more.
        """
        found = self.index().find(name)
        for network in self.store.networks():
            if (network.configuration or network.name) == name and not is_guarded(found):
                egress = parse_options(network.options).egress
                found = with_guard(found, egress.allow, audit=egress.audit)
        return await self.runtime.negotiate(found)

    def current_lists(self) -> Iterator[tuple[NetworkRecord, NetworkConfigurationList]]:
        """Yield each network with its list as it is on disk now, and the guard that the network's options add.

        A network is left out if its name is not known, there is no such list, or the options are not valid for it: then
        no container starts on the network.
        """
        index = self.index()
        for network in self.store.networks():
            name = network.configuration or network.name
            if name is None:
                continue
            try:
                egress = parse_options(network.options).egress
                found = with_guard(index.find(name), egress.allow, audit=egress.audit)
            except (BridgeError, CniError):
                continue
            yield network, found

    def bound_names(self) -> tuple[str, ...]:
        """Return the names of the lists that networks use."""
        names = (network.configuration or network.name for network in self.store.networks())
        return tuple(name for name in names if name is not None)

    def bound_documents(self) -> tuple[JsonObject, ...]:
        """Return the JSON of the lists that networks use and that are on disk now."""
        found, index = list[JsonObject](), self.index()
        for name in dict.fromkeys(self.bound_names()):
            with suppress(CniError):
                found.append(index.find(name).document)
        return tuple(found)


async def count_outdated(store: Store, directories: ConfigurationDirectories) -> Mapping[NetworkId, int]:
    """Return how many endpoints of each network were made before their list changed on disk, or was removed.

    Endpoints without a digest do not count: they were rebuilt.
    """

    def digest_all() -> Mapping[str, str]:
        index = directories.index()
        return {name: configuration_digest(index.find(name).document) for name in index.names}

    digests = await asyncio.to_thread(digest_all)
    found: Counter[NetworkId] = Counter()
    time_slice = TimeSlice()
    for record in store.endpoints():
        made_from = record.configuration_digest
        if made_from is not None and digests.get(record.attachment.network) != made_from:
            found[record.network_id] += 1
        await time_slice.pause()
    return found
