# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Running plugins are recorded in files, by which the plugins of a killed runtime are found."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cni_invoker.execution.running_plugins import RunningPlugins, find_abandoned, find_running

PROGRAM = """
import os, sys
from pathlib import Path
from cni_invoker.execution.running_plugins import RunningPlugins
with RunningPlugins(Path(sys.argv[1])).keep("a1", "ADD", "bridge"):
    os.kill(os.getpid(), 9)
"""


def test_a_file_exists_while_its_plugin_runs(tmp_path: Path) -> None:
    """It says what runs, and for how long. While the runtime runs, its plugins are not abandoned."""
    assert find_running(tmp_path / "running") == ()
    with RunningPlugins(tmp_path / "running").keep("a1", "ADD", "a plugin") as kept:
        (found,) = find_running(tmp_path / "running")
        assert kept.environment == {"INVOKED_EXECUTION": found.file.name}
        assert (found.plugin, found.verb, found.container_id) == ("a plugin", "ADD", "a1")
        assert 0 <= found.age_s < 60
        assert find_abandoned(tmp_path / "running", None) == ()
    assert not list((tmp_path / "running").iterdir())


@pytest.mark.parametrize("has_ended", [True, False])
def test_the_file_of_a_plugin_that_cannot_be_killed_is_kept(tmp_path: Path, has_ended: bool) -> None:
    """A plugin that hangs in the kernel survives SIGKILL: the next runtime must know that it may still run.

    To read the environment of such a process may never end, so its name is not looked for there.
    """
    with RunningPlugins(tmp_path).keep("a1", "ADD", "cat") as kept:
        plugin = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={})
        kept.on_started(plugin.pid)
        plugin.communicate() if has_ended else None
    plugin.communicate()
    assert len(list(tmp_path.iterdir())) == (not has_ended)


def test_a_plugin_of_a_killed_runtime_is_abandoned(tmp_path: Path) -> None:
    """It is found by its container ID."""
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], check=False)
    (found,) = find_abandoned(tmp_path, ["a1", "b2"])
    assert (found.container_id, found.verb, found.plugin) == ("a1", "ADD", "bridge")
    assert find_abandoned(tmp_path, ["b2"]) == ()
    assert [one.file for one in find_abandoned(tmp_path, None)] == [found.file]


def test_a_plugin_without_a_container_is_not_recorded(tmp_path: Path) -> None:
    """VERSION and STATUS have no container, and nothing is recorded without a directory."""
    with RunningPlugins(tmp_path).keep("", "STATUS", "a"), RunningPlugins(None).keep("a1", "ADD", "a") as kept:
        assert not list(tmp_path.iterdir())
        assert kept.environment == {}


@pytest.mark.parametrize("name", ["1-0-0", "README", "1-0"])
def test_files_without_a_record_are_ignored(tmp_path: Path, name: str) -> None:
    """An empty file is of a runtime that was killed before it started a plugin."""
    (tmp_path / name).touch()
    assert find_abandoned(tmp_path, None) == ()
    assert (tmp_path / name).exists()


def test_a_plugin_runs_even_if_it_cannot_be_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """DEL must not fail because no file can be created. The error is logged once."""
    (tmp_path / "running").write_text("no directory")
    running = RunningPlugins(tmp_path / "running")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with running.keep("a1", "DEL", "bridge") as kept:
                kept.on_started(os.getpid())
    assert [record.__dict__["event"] for record in caplog.records] == ["plugins.not_kept"]
