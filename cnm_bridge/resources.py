# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon works with: the settings, the records, and access to plugins, kernel and engine."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_state import EndpointId
from cni_bridge_state.store import Store
from cni_invoker import DEFAULT_LOCK_DIR, Limits, Runtime, installed_plugins
from cni_invoker.execution.running_plugins import read_boot_id
from cnm_bridge.core.lists.dhcp import LEASE_LIMIT_S
from cnm_bridge.core.settings import Settings
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.process import find_plugin_oom_score
from cnm_bridge.system.scheduling import KeyedLocks

_RESULT_BYTES: Final = 256 << 10
_RESULT_ENTRIES: Final = 512
"""What takes the event loop some 20 ms at most: 2000 routes blocked it for a third of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The settings, and access to records, plugins, kernel and engine.

    Attributes:
        running_dir: The directory that records the running plugins.
        engine: The engine, for work in the background.
        engine_in_calls: The engine with a shorter time limit, for calls that Docker waits for.
        locks: The locks of endpoints.
    """

    settings: Settings
    store: Store
    runtime: Runtime
    limits: Limits
    running_dir: Path
    kernel: Kernel
    boot_id: str
    engine: Engine
    engine_in_calls: Engine
    version: KnownVersion
    journal: Journal
    locks: KeyedLocks[EndpointId]

    async def close(self) -> None:
        """Close the connections to the engine."""
        await self.engine.close()
        await self.engine_in_calls.close()


def make_resources(settings: Settings, store: Store, plugin_descriptors: int | None) -> Resources:
    """Return the surroundings; the arguments are those of `assemble`."""
    limits = Limits(
        add_s=settings.plugin_timeout_s,
        dhcp_s=LEASE_LIMIT_S,
        delete_s=settings.plugin_timeout_s,
        stdout_bytes=_RESULT_BYTES,
        result_entries=_RESULT_ENTRIES,
        stderr_lines=0,  # it may contain credentials, and errors reach the log and Docker's users
        descriptors=plugin_descriptors,
        oom_score=find_plugin_oom_score(),
    )
    running_dir = settings.run_dir / "plugins"
    journal = Journal()
    store.when_phase_changed(journal.on_phase)
    return Resources(
        settings=settings,
        store=store,
        runtime=Runtime(
            settings.cni_bin_dirs,
            limits,
            lock_dir=DEFAULT_LOCK_DIR,
            running_dir=running_dir,
            environment=dict(os.environ),  # reading it takes long, and it is read for every execution
            observer=journal.on_execution,
            in_process=installed_plugins(),
        ),
        limits=limits,
        running_dir=running_dir,
        kernel=Kernel(reply_limit_s=settings.netlink_timeout_s),
        boot_id=read_boot_id(),
        engine=Engine(settings.docker_host, settings.engine_background_timeout_s, stays_open=True),
        engine_in_calls=Engine(settings.docker_host, settings.engine_timeout_s, stays_open=True),
        version=KnownVersion(store),
        journal=journal,
        locks=KeyedLocks(),
    )
