# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An endpoint is not torn down while an orphaned plugin of the previous run still works for it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cni_bridge_state import AttachmentId
from cni_invoker.errors import PluginStillRuns
from cnm_bridge.driver.teardown import teardown
from cnm_bridge.driver.teardown.teardown import OrphanedPlugins
from tests.unit.cni_invoker.processes import wait_until

ONE, TWO = AttachmentId(f"{os.getpid():064x}"), AttachmentId(f"{os.getpid():063x}f")


@pytest.fixture(name="plugin")
def start_plugin(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that looks like a plugin for the first endpoint, whose runtime no longer runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"],
        env={"INVOKED_EXECUTION": "1-0-0"},
        start_new_session=True,
    )
    # The kernel shows the environment a moment after the program has begun.
    wait_until(lambda: Path(f"/proc/{process.pid}/environ").read_bytes() != b"")
    (tmp_path / "1-0-0").write_text(f"{ONE} ADD bridge\n")
    yield process
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()


async def test_an_endpoint_with_an_unkillable_plugin_is_refused(
    plugin: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other endpoints are accepted; once the plugin can be killed, the endpoint is accepted too."""
    plugins = OrphanedPlugins(tmp_path)
    monkeypatch.setattr(teardown, "_ORPHANS_LIMIT_S", 0.5)
    with monkeypatch.context() as kernel:
        kernel.setattr(signal, "pidfd_send_signal", lambda *_: None)  # as for a process that hangs in the kernel
        await plugins.kill()
        await plugins.ensure_none(TWO)
        with pytest.raises(PluginStillRuns, match=f"process {plugin.pid} "):
            await plugins.ensure_none(ONE)
    await plugins.ensure_none(ONE)
    assert plugin.wait() == -signal.SIGKILL
    await plugins.ensure_none(ONE)


async def test_an_orphaned_plugin_is_killed(plugin: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """It is killed before any teardown runs."""
    plugins = OrphanedPlugins(tmp_path)
    await plugins.kill()
    assert plugin.wait() == -signal.SIGKILL
    await plugins.ensure_none(ONE)
