# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.driver.teardown`."""

from collections.abc import Callable
from dataclasses import dataclass

from cni_bridge_state import EndpointId
from cnm_bridge.assembly.attach import AttachRoom
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.driver.attach.liveness import Liveness
from cnm_bridge.driver.teardown.address_owners import AddressOwners, UnrecordedLinks
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from cnm_bridge.driver.teardown.in_use_check import InUseCheck
from cnm_bridge.driver.teardown.loop import TeardownLoop
from cnm_bridge.driver.teardown.orphaned_plugins import OrphanedPlugins
from cnm_bridge.driver.teardown.pending import PendingTeardowns
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.driver.teardown.slots import TeardownSlots
from cnm_bridge.driver.teardown.teardown import CheckedTeardown, Teardown


@dataclass(frozen=True, slots=True, kw_only=True)
class TeardownRoom:
    """The room `teardown`."""

    queue: TeardownQueue
    owners: AddressOwners
    liveness: Liveness
    in_use: InUseCheck
    orphaned_plugins: OrphanedPlugins
    dead: DeadEndpoints


def make_teardown(resources: Resources, *, attach: AttachRoom, quiet_s: Callable[[EndpointId], float]) -> TeardownRoom:
    """Return the objects of the room; `quiet_s` returns for how long Docker has called about no other endpoint."""
    owners = AddressOwners(resources.store)
    liveness = Liveness(resources.kernel)
    in_use = InUseCheck(resources.kernel)
    slots = TeardownSlots(resources.limits.executions)
    pending = PendingTeardowns()
    unrecorded = UnrecordedLinks(resources.store, resources.kernel)
    teardown = Teardown(
        store=resources.store,
        attachers=attach.attachers,
        owners=owners,
        unrecorded=unrecorded,
        slots=slots,
        pending=pending,
    )
    orphaned_plugins = OrphanedPlugins(resources.running_dir)
    loop = TeardownLoop(
        store=resources.store,
        teardown=CheckedTeardown(resources.store, attach.attachers, teardown, in_use, orphaned_plugins),
        pending=pending,
        locks=attach.locks,
        slots=slots,
        quiet_s=quiet_s,
    )
    queue = TeardownQueue(
        store=resources.store, loop=loop, pending=pending, locks=attach.locks, owners=owners, slots=slots
    )
    return TeardownRoom(
        queue=queue,
        owners=owners,
        liveness=liveness,
        in_use=in_use,
        orphaned_plugins=orphaned_plugins,
        dead=DeadEndpoints(resources.store, liveness, in_use, queue),
    )
