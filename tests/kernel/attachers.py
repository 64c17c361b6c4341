# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachers as the daemon makes them, with an engine that does not answer."""

from pathlib import Path

from cni_bridge_state import AttachMode
from cni_bridge_state.store import Store
from cni_invoker import Runtime
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
from cnm_bridge.system.engine import Engine, KnownRelease
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks


def make_attachers(
    store: Store, runtime: Runtime, kernel: Kernel, run_dir: Path, owners: SandboxOwners | None = None
) -> Attachers:
    """Make an attacher for each mode; with `owners`, the engine's answers about containers are theirs."""
    detacher = MoveDetacher(runtime, kernel)
    release = KnownRelease(store)
    release.lose()
    owners = owners or SandboxOwners(kernel, Engine(f"unix://{run_dir}/none", 1.0), release)
    places = PlaceFinder(store, kernel, owners, release, run_dir)
    sandbox_sync = SandboxSync(store, kernel, KeyedLocks(), Announcer(store, kernel))
    move = MoveAttacher(
        store=store,
        runtime=runtime,
        kernel=kernel,
        sandbox_sync=sandbox_sync,
        detacher=detacher,
        places=places,
    )
    leases = Leases(runtime, DhcpDaemons(kernel))
    in_sandbox = SandboxAttacher(
        store=store,
        runtime=runtime,
        kernel=kernel,
        places=places,
        move=move,
        detacher=SandboxDetacher(
            runtime=runtime, kernel=kernel, places=places, move=detacher, leases=leases, run_dir=run_dir
        ),
        leases=leases,
        sandbox_sync=sandbox_sync,
        run_dir=run_dir,
    )
    return {AttachMode.MOVE: move, AttachMode.HYBRID: in_sandbox, AttachMode.DIRECT: in_sandbox}
