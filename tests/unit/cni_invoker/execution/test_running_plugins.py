# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Running plugins are recorded in files, by which the plugins of a killed runtime are found."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cni_invoker.execution.process_table import find_process
from cni_invoker.execution.running_plugins import RunningPlugins, find_abandoned, find_running

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from cni_invoker.execution.running_plugins import RunningPlugins
with RunningPlugins(Path(sys.argv[1])).keep("a1") as on_started:
    plugin = subprocess.Popen(["true"])
    on_started(plugin.pid)
    print(plugin.pid, flush=True)
    os.kill(os.getpid(), 9)
"""


def kill_a_runtime(directory: Path) -> int:
    """Run a runtime that is killed while a plugin runs, and return the plugin's process ID."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, directory], stdout=subprocess.PIPE, check=False)
    return int(done.stdout)


def test_a_file_exists_while_its_plugin_runs(tmp_path: Path) -> None:
    """While the runtime runs, its plugins are not abandoned."""
    with (
        RunningPlugins(tmp_path / "running").keep("a1") as on_started,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as plugin,
    ):
        on_started(plugin.pid)
        (file,) = (tmp_path / "running").iterdir()
        found = find_process(plugin.pid)
        assert found is not None
        assert file.read_text().splitlines()[1] == f"{found.pid} {found.started}"
        assert find_abandoned(tmp_path / "running", None) == ()
    assert not list((tmp_path / "running").iterdir())


def test_plugins_that_run_now(tmp_path: Path) -> None:
    """Each has its name, its verb and its age; one that has ended is not among them."""
    assert find_running(tmp_path / "missing") == ()
    with RunningPlugins(tmp_path).keep("c1") as on_started:
        pipe = subprocess.PIPE
        with subprocess.Popen(["/bin/cat"], env={"CNI_COMMAND": "ADD"}, stdin=pipe, stdout=pipe, bufsize=0) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"-")
            process.stdout.read(1)  # it runs: before, the kernel may not show its command
            on_started(process.pid)
            (found,) = find_running(tmp_path)
            process.kill()
        assert (found.plugin, found.verb, found.container_id) == ("cat", "ADD", "c1")
        assert 0 <= found.age_s < 60
        assert find_running(tmp_path) == ()


def test_the_file_of_a_plugin_that_cannot_be_killed_is_kept(tmp_path: Path) -> None:
    """A plugin that hangs in the kernel survives SIGKILL: the next runtime must know that it may still run."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as plugin:
        with RunningPlugins(tmp_path).keep("a1") as on_started:
            on_started(plugin.pid)
        (file,) = tmp_path.iterdir()
        assert file.read_text().splitlines()[1].startswith(f"{plugin.pid} ")


def test_a_plugin_of_a_killed_runtime_is_abandoned(tmp_path: Path) -> None:
    """Container ID, process ID and start time are found."""
    pid = kill_a_runtime(tmp_path)
    (found,) = find_abandoned(tmp_path, ["a1", "b2"])
    assert found.container_id == "a1"
    assert found.leader is not None
    assert found.leader[0] == pid
    assert 0 <= found.leader[1] - found.since < 60 * os.sysconf("SC_CLK_TCK")
    assert find_abandoned(tmp_path, ["b2"]) == ()
    assert find_abandoned(tmp_path, None) == (found,)


def test_a_plugin_without_a_container_is_not_recorded(tmp_path: Path) -> None:
    """VERSION, STATUS and GC have no container, and nothing is recorded without a directory."""
    with RunningPlugins(tmp_path).keep(""), RunningPlugins(None).keep("a1"):
        assert not list(tmp_path.iterdir())


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
            with running.keep("a1") as on_started:
                on_started(os.getpid())
    assert [record.__dict__["event"] for record in caplog.records] == ["plugins.not_kept"]
