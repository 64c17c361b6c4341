# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.driver.ipam`."""

from dataclasses import dataclass

from cnm_bridge.assembly.networks import NetworkRoom
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.assembly.teardown import TeardownRoom
from cnm_bridge.driver.ipam.lost_addresses import LostAddresses
from cnm_bridge.driver.ipam.plugin_runs import PluginRuns
from cnm_bridge.driver.ipam.releases import Releases
from cnm_bridge.driver.ipam.sections import Sections
from cnm_bridge.driver.ipam.service import IpamService
from cnm_bridge.driver.ipam.unclaimed_addresses import UnclaimedAddresses
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks


@dataclass(frozen=True, slots=True, kw_only=True)
class IpamRoom:
    """The room `ipam`."""

    service: IpamService
    releases: Releases
    unclaimed: UnclaimedAddresses


def make_ipam(resources: Resources, *, networks: NetworkRoom, teardown: TeardownRoom) -> IpamRoom:
    """Return the objects of the room."""
    plugins = PluginRuns(resources.runtime, resources.kernel, resources.settings.run_dir)
    releases = Releases(resources.store, plugins, teardown.queue, KeyedLocks())
    service = IpamService(
        store=resources.store,
        sections=Sections(networks.directories),
        managed=networks.managed,
        runtime=resources.runtime,
        plugins=plugins,
        releases=releases,
        lost=LostAddresses(resources.kernel),
    )
    settings = resources.settings
    return IpamRoom(
        service=service,
        releases=releases,
        unclaimed=UnclaimedAddresses(
            store=resources.store,
            engine=resources.engine,
            kernel=resources.kernel,
            service=service,
            driver=settings.driver_name,
            grace_s=settings.reconcile_grace_s,
            settled_s=settings.plugin_timeout_s,
        ),
    )
