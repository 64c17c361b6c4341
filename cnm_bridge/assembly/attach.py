# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.driver.attach`."""

from dataclasses import dataclass

from cni_bridge_state import AttachMode, EndpointId
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.driver.attach.announcer import Announcer
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.attach.in_sandbox.attacher import SandboxAttacher
from cnm_bridge.driver.attach.in_sandbox.detacher import SandboxDetacher
from cnm_bridge.driver.attach.in_sandbox.dhcp_daemon import DhcpDaemons
from cnm_bridge.driver.attach.in_sandbox.leases import Leases
from cnm_bridge.driver.attach.move.attacher import MoveAttacher
from cnm_bridge.driver.attach.move.detacher import MoveDetacher
from cnm_bridge.driver.attach.place_finder import PlaceFinder
from cnm_bridge.driver.attach.sandbox_owner import SandboxOwners
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRoom:
    """The room `attach`, and the locks of endpoints, which all rooms above it share."""

    attachers: Attachers
    owners: SandboxOwners
    sandbox_sync: SandboxSync
    announcer: Announcer
    dhcp_daemons: DhcpDaemons
    leases: Leases
    locks: KeyedLocks[EndpointId]


def make_attach(resources: Resources, owners: SandboxOwners) -> AttachRoom:
    """Return the objects of the room; `owners` finds the containers of sandboxes."""
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    runtime, kernel, run_dir = resources.runtime, resources.kernel, resources.settings.run_dir
    announcer = Announcer(resources.store, kernel)
    sandbox_sync = SandboxSync(resources.store, kernel, locks, announcer, resources.release)
    move_detacher = MoveDetacher(runtime, kernel)
    daemons = DhcpDaemons(kernel)
    leases = Leases(runtime, daemons)
    places = PlaceFinder(resources.store, kernel, owners, resources.release, run_dir)
    move = MoveAttacher(
        store=resources.store,
        runtime=runtime,
        kernel=kernel,
        sandbox_sync=sandbox_sync,
        detacher=move_detacher,
        places=places,
    )
    in_sandbox = SandboxAttacher(
        store=resources.store,
        runtime=runtime,
        kernel=kernel,
        places=places,
        move=move,
        detacher=SandboxDetacher(
            runtime=runtime, kernel=kernel, places=places, move=move_detacher, leases=leases, run_dir=run_dir
        ),
        leases=leases,
        sandbox_sync=sandbox_sync,
        run_dir=run_dir,
    )
    return AttachRoom(
        attachers={AttachMode.MOVE: move, AttachMode.HYBRID: in_sandbox, AttachMode.DIRECT: in_sandbox},
        owners=owners,
        sandbox_sync=sandbox_sync,
        announcer=announcer,
        dhcp_daemons=daemons,
        leases=leases,
        locks=locks,
    )
