# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.driver.networks`."""

from dataclasses import dataclass

from cni_bridge_state import NetworkId
from cni_invoker import ConfigurationDirectories
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.core.settings import Scope
from cnm_bridge.driver.networks.configuration_watch import ConfigurationWatch
from cnm_bridge.driver.networks.engine_import import EngineImport
from cnm_bridge.driver.networks.global_scope import GlobalScope
from cnm_bridge.driver.networks.managed import ManagedNetworks
from cnm_bridge.driver.networks.network_names import NetworkNameResolver
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.networks.unused_bridges import UnusedBridges
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRoom:
    """The room `networks`."""

    service: NetworkService
    directories: ConfigurationDirectories
    name_resolver: NetworkNameResolver
    engine_import: EngineImport
    managed: ManagedNetworks
    watch: ConfigurationWatch


def make_networks(resources: Resources) -> NetworkRoom:
    """Return the objects of the room."""
    locks: KeyedLocks[NetworkId] = KeyedLocks()
    directories = ConfigurationDirectories(resources.settings.cni_conf_dirs)
    name_resolver = NetworkNameResolver(resources.store, resources.engine, locks, resources.settings.binding_timeout_s)
    engine_import = EngineImport(resources.store, resources.engine_in_calls, locks)
    settings = resources.settings
    managed = ManagedNetworks(settings.networks, resources.engine, settings.driver_name)
    return NetworkRoom(
        service=NetworkService(
            store=resources.store,
            directories=directories,
            runtime=resources.runtime,
            name_resolver=name_resolver,
            engine_import=engine_import,
            release=resources.release,
            attach=settings.attach,
            allow_inline=settings.allow_inline,
            arg_names=settings.cni_arg_names,
            global_scope=GlobalScope(resources.engine_in_calls) if settings.scope is Scope.GLOBAL else None,
            managed=managed,
            unused_bridges=UnusedBridges(resources.kernel),
            locks=locks,
        ),
        directories=directories,
        name_resolver=name_resolver,
        engine_import=engine_import,
        managed=managed,
        watch=ConfigurationWatch(resources.store, directories, resources.runtime),
    )
