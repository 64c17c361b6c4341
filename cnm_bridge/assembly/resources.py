# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates the objects that access records, plugins, kernel and engine."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_state.store import Store
from cni_invoker import DEFAULT_LOCK_DIR, Limits, Runtime
from cni_invoker.execution.process_table import read_boot_id
from cnm_bridge.core.model.dhcp import LEASE_LIMIT_S
from cnm_bridge.core.settings import Settings
from cnm_bridge.system.engine import Engine, KnownRelease
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.kernel import Kernel, has_chain
from cnm_bridge.system.process.tuning import find_plugin_oom_score
from cnm_bridge.system.trace import find_trace

_RUNNING: Final = "plugins"
"""The subdirectory of `run_dir` that records the running plugins."""

_RESULT_BYTES: Final = 256 << 10
_RESULT_ENTRIES: Final = 512
"""What takes the event loop some 20 ms at most: 2000 routes blocked it for a third of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The settings, and access to records, plugins, kernel and engine.

    Attributes:
        settings: The settings.
        store: The records.
        runtime: Runs plugins.
        limits: The limits of the plugins.
        running_dir: The directory that records the running plugins.
        kernel: Links and namespaces.
        boot_id: The kernel's boot ID.
        engine: The engine, for work in the background.
        engine_in_calls: The engine with a shorter time limit, for calls that Docker waits for.
        engine_at_join: The same with a connection that stays open, for each start of a container.
        release: The engine's release.
        journal: The last events.
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
    engine_at_join: Engine
    release: KnownRelease
    journal: Journal


def make_resources(settings: Settings, store: Store, plugin_descriptors: int | None) -> Resources:
    """Return the surroundings; the arguments are those of `cnm_bridge.assembly.assemble`."""
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
    running_dir = settings.run_dir / _RUNNING
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
            observer=journal,
            find_trace=find_trace,
            has_chain=has_chain,
        ),
        limits=limits,
        running_dir=running_dir,
        kernel=Kernel(reply_limit_s=settings.netlink_timeout_s),
        boot_id=read_boot_id(),
        engine=Engine(settings.docker_host, settings.engine_background_timeout_s),
        engine_in_calls=Engine(settings.docker_host, settings.engine_timeout_s),
        engine_at_join=Engine(settings.docker_host, settings.engine_timeout_s, stays_open=True),
        release=KnownRelease(store),
        journal=journal,
    )
