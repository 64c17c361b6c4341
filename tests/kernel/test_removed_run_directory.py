# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`rm -rf /run/cni-bridge` while the daemon runs: what needs the directory makes it again."""

import shutil
from pathlib import Path

import pytest

from cni_invoker.execution.running_plugins import RunningPlugins
from cnm_bridge.system.kernel import Kernel


async def test_who_needs_the_directory_makes_it(tmp_path: Path, kernel: Kernel) -> None:
    """Staging namespaces, mount points of pins, and the files of running plugins do not need a restart."""
    run_dir = tmp_path / "run"
    plugins = RunningPlugins(run_dir / "plugins")
    for _ in range(2):
        await kernel.create_staging(run_dir / "netns" / "one")
        kernel.pin(run_dir / "pins" / "one", "eth0", "cni-test").prepare()
        with plugins.keep("one", "ADD", "bridge"):
            assert len([*(run_dir / "plugins").iterdir()]) == 1
        with pytest.raises(OSError, match="busy"):
            shutil.rmtree(run_dir / "netns")
        await kernel.remove_staging(run_dir / "netns" / "one")
        shutil.rmtree(run_dir)
