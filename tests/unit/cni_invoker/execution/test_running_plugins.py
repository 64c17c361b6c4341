# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Running plugins are recorded; orphaned ones, which outlived their runtime, are killed, and no other process is."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from errno import EMFILE
from pathlib import Path

import pytest

from cni_invoker.advanced import kill_orphaned_plugins
from cni_invoker.execution.running_plugins import RunningPlugins, find_abandoned, find_running
from tests.unit.cni_invoker.processes import is_alive, wait_until

CONTAINER_ID = f"orphan-{os.getpid()}"
LIMIT_S = 30.0

PROLOGUE = """#!/bin/sh
exec </dev/null
[ "$CNI_COMMAND" != VERSION ] || { echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}'; exit; }
note() { echo "$1 $2" >> "$LOG"; }
answer() { echo '{"cniVersion": "1.1.0"}'; exit; }
"""
PLUGINS = {
    # What `dnsmasq` does: it forks, starts a session, and forks again.
    "twice": 'setsid sh -c \'sleep 600 >/dev/null 2>&1 & echo "forked-twice $!" >> "$LOG"\'; answer',
    # What a plugin in Go does with SysProcAttr.Setsid; standard error stays open.
    "leader": "setsid sleep 600 >/dev/null & note leads-a-session $!; answer",
    # The same with the pipe of the plugin's result and another pipe kept open.
    "holding": 'setsid sh -c \'note() { echo "$1 $2" >> "$LOG"; }; note holds-a-pipe $$; exec sleep 99\' 3>&1 & answer',
    "plain": "sleep 600 >/dev/null 2>&1 & note without-a-session $!; answer",
    "ipam": "note ipam $$; exec sleep 600",
    "hangs": '"${0%/*}/ipam" & sleep 600 >/dev/null 2>&1 & note child $!; note plugin $$; wait',
    # What shell plugins do that write a log.
    "logging": 'exec 3>&1 >"$LOG.out" 2>&1; note plugin $$; while :; do sleep 1; done',
}
PROGRAM = """
import asyncio, sys
from pathlib import Path
from cni_invoker import Attachment, Limits, NetworkConfigurationList, Runtime
verb, directory, container_id, *plugins = sys.argv[1:]
network = NetworkConfigurationList.from_document(
    {"name": "blue", "cniVersion": "1.1.0", "plugins": [{"type": plugin} for plugin in plugins]}
)
attachment = Attachment(container_id=container_id, ifname="eth0", netns="/run/netns/x")
runtime = Runtime([Path(directory)], Limits(grace_s=0.3), running_dir=Path(directory, "running"))
asyncio.run(runtime.gc(network, []) if verb == "GC" else runtime.add(network, attachment))
"""


class Scene:
    """A directory of plugins, and a runtime in its own process that adds a container with them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = directory / "log"
        self._runtime: subprocess.Popen[bytes] | None = None
        for name, body in PLUGINS.items():
            path = directory / name
            path.write_text(f"{PROLOGUE}{body}\n")
            path.chmod(0o755)

    @property
    def pids(self) -> dict[str, int]:
        """The process IDs of the started processes, by name."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return {name: int(pid) for name, pid in (line.split() for line in lines if line.count(" ") == 1)}

    def start(self, *plugins: str, expect: set[str], verb: str = "ADD") -> None:
        """Start a runtime, and wait until these processes exist."""
        self._runtime = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, verb, str(self.directory), CONTAINER_ID, *plugins],
            env={**os.environ, "LOG": str(self._log), "PYTHONPATH": str(Path(__file__).parents[4])},
        )
        wait_until(lambda: self.pids.keys() >= expect)

    @property
    def running(self) -> Path:
        """The directory in which the runtime records running plugins."""
        return self.directory / "running"

    def kill_runtime(self) -> None:
        """Kill the runtime with SIGKILL."""
        assert self._runtime is not None
        self._runtime.kill()
        self._runtime.wait()

    def orphan(self, verb: str = "ADD") -> None:
        """Start a plugin that hangs, with its IPAM plugin and another child, and kill its runtime."""
        self.start("hangs", expect={"plugin", "ipam", "child"}, verb=verb)
        self.kill_runtime()

    def close(self) -> None:
        """Kill the runtime and all processes of the plugins."""
        if self._runtime is not None:
            self.kill_runtime()
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(name="scene")
def make_scene(tmp_path: Path) -> Iterator[Scene]:
    """Plugins whose processes are killed at the end of the test."""
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def kill(scene: Scene) -> set[int]:
    """Kill the orphaned plugins of the container."""
    killed, running = kill_orphaned_plugins(scene.running, [CONTAINER_ID, "unknown"], limit_s=LIMIT_S)
    assert running == ()
    return set(killed)


def test_an_orphaned_plugin_is_killed_with_its_children(scene: Scene) -> None:
    """The IPAM plugin and other children have its name in their environment."""
    scene.orphan()
    assert kill(scene) == set(scene.pids.values())
    assert not any(map(is_alive, scene.pids.values()))


def test_children_of_a_killed_plugin_are_killed(scene: Scene) -> None:
    """The IPAM plugin could reserve an address after DEL; it is still found."""
    scene.orphan()
    os.kill(scene.pids["plugin"], signal.SIGKILL)
    wait_until(lambda: not is_alive(scene.pids["plugin"]))
    assert kill(scene) == {scene.pids["ipam"], scene.pids["child"]}
    assert not list(scene.running.iterdir())


def test_all_are_killed_although_the_time_limit_has_passed(scene: Scene) -> None:
    """A process that hangs in the kernel may use up the time limit; the others must still be killed."""
    scene.orphan()
    killed, _ = kill_orphaned_plugins(scene.running, [CONTAINER_ID], limit_s=0.0)
    assert set(killed) == set(scene.pids.values())
    wait_until(lambda: not any(map(is_alive, scene.pids.values())))


def test_processes_that_cannot_be_signalled_are_reported_as_running(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors no process can be killed; the next attempt kills all of them."""
    scene.orphan()

    def without_descriptors(_: int) -> int:
        raise OSError(EMFILE, "too many open files")

    with monkeypatch.context() as kernel:
        kernel.setattr(os, "pidfd_open", without_descriptors)
        killed, running = kill_orphaned_plugins(scene.running, [CONTAINER_ID], limit_s=0.1)
    assert killed == ()
    assert {orphan.pid for orphan in running} == set(scene.pids.values())
    assert {orphan.container_id for orphan in running} == {CONTAINER_ID}
    assert kill(scene) == set(scene.pids.values())


def test_a_plugin_that_redirected_its_standard_output_is_killed(scene: Scene) -> None:
    """It still has the pipe of its result open."""
    scene.start("logging", expect={"plugin"})
    scene.kill_runtime()
    assert scene.pids["plugin"] in kill(scene)
    assert not is_alive(scene.pids["plugin"])


@pytest.mark.parametrize(
    ("plugin", "daemon"),
    [
        ("twice", "forked-twice"),
        ("leader", "leads-a-session"),
        ("holding", "holds-a-pipe"),
        ("plain", "without-a-session"),
    ],
)
def test_a_daemon_of_a_completed_plugin_is_not_killed(scene: Scene, plugin: str, daemon: str) -> None:
    """The execution that is named in its environment has ended."""
    scene.start(plugin, "hangs", expect={daemon, "plugin", "ipam", "child"})
    scene.kill_runtime()
    assert kill(scene) == {scene.pids[name] for name in ("plugin", "ipam", "child")}
    assert is_alive(scene.pids[daemon])
    assert kill(scene) == set()


def test_a_plugin_whose_runtime_runs_is_not_killed(scene: Scene) -> None:
    """The runtime still waits for its result."""
    scene.start("hangs", expect={"plugin", "ipam", "child"})
    assert kill(scene) == set()
    assert all(map(is_alive, scene.pids.values()))


def test_a_plugin_of_another_container_is_not_killed(scene: Scene) -> None:
    """Container IDs are compared as a whole."""
    scene.orphan()
    for others in ([CONTAINER_ID[:-1], f"{CONTAINER_ID}0"], []):
        assert kill_orphaned_plugins(scene.running, others, limit_s=LIMIT_S) == ((), ())
    assert all(map(is_alive, scene.pids.values()))


@pytest.mark.parametrize("leader_runs", [True, False])
def test_an_orphaned_gc_is_killed_before_any_operation(scene: Scene, leader_runs: bool) -> None:
    """A GC deletes whatever its runtime did not list as valid, such as attachments that were added later."""
    scene.orphan("GC")
    if not leader_runs:
        os.kill(scene.pids["plugin"], signal.SIGKILL)
        wait_until(lambda: not is_alive(scene.pids["plugin"]))
    expected = {pid for name, pid in scene.pids.items() if leader_runs or name != "plugin"}
    killed, _ = kill_orphaned_plugins(scene.running, ["another"], limit_s=LIMIT_S)
    assert set(killed) == expected
    assert not list(scene.running.iterdir())


SLEEPER = """
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
    """A plugin that hangs in the kernel survives SIGKILL: the next runtime must know that it may still run."""
    with RunningPlugins(tmp_path).keep("a1", "ADD", "cat") as kept:
        plugin = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={})
        kept.on_started(plugin.pid)
        plugin.communicate() if has_ended else None
    plugin.communicate()
    assert len(list(tmp_path.iterdir())) == (not has_ended)


def test_a_plugin_of_a_killed_runtime_is_abandoned(tmp_path: Path) -> None:
    """It is found by its container ID."""
    subprocess.run([sys.executable, "-c", SLEEPER, tmp_path], check=False)
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
