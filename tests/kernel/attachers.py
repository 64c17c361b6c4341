# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attachers and the teardown as the daemon makes them, with an engine that does not answer."""

from dataclasses import replace
from pathlib import Path

from cni_bridge_state.store import Store
from cni_invoker import Runtime
from cnm_bridge.assembly import make_attachers as make
from cnm_bridge.core.settings import Settings
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.attach.leases import Leases
from cnm_bridge.driver.attach.place_finder import SandboxOwners
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.driver.teardown.pending import PendingTeardowns
from cnm_bridge.driver.teardown.teardown import OrphanedPlugins, Teardown
from cnm_bridge.resources import make_resources
from cnm_bridge.system.kernel import Kernel


def make_attachers(
    store: Store, runtime: Runtime, kernel: Kernel, run_dir: Path, owners: SandboxOwners | None = None
) -> Attachers:
    """Make an attacher for each mode; with `owners`, the engine's answers about containers are theirs."""
    settings = Settings(docker_host=f"unix://{run_dir}/none", run_dir=run_dir)
    resources = replace(make_resources(settings, store, None), runtime=runtime, kernel=kernel)
    resources.version.lose()
    owners = owners or SandboxOwners(kernel, resources.engine_in_calls, resources.version)
    sandbox_sync = SandboxSync(store, kernel, resources.locks, resources.version)
    return make(resources, owners, sandbox_sync, Leases(runtime, kernel))


def make_teardown(
    store: Store,
    attachers: Attachers,
    kernel: Kernel,
    directory: Path,
    *,
    pending: PendingTeardowns,
    owners: AddressOwners | None = None,
    liveness: Liveness | None = None,
    kind: type[Teardown] = Teardown,
) -> Teardown:
    """Make the teardown, after a run that left no plugin behind."""
    return kind(
        store=store,
        attachers=attachers,
        owners=owners or AddressOwners(store, pending),
        pending=pending,
        liveness=liveness or Liveness(store, kernel),
        orphaned_plugins=OrphanedPlugins(directory / "running"),
    )
