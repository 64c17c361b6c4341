# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The unreliable plugin fails, hangs or is slow as its configuration says, and passes all other calls on."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from tests.plugins.unreliable import Fault, goes_wrong, render_unreliable

REAL = """#!/bin/sh
cat >/dev/null
echo "$CNI_COMMAND $CNI_CONTAINERID" >>"${0%/*}/calls"
echo '{"cniVersion": "1.0.0"}'
"""


class Plugin:
    """An unreliable `bridge` in front of one that records its calls."""

    def __init__(self, directory: Path) -> None:
        self.real = directory / "real"
        self.real.mkdir()
        (self.real / "bridge").write_text(REAL)
        (self.real / "bridge").chmod(0o755)
        self.path = directory / "bridge"
        self.path.write_text(render_unreliable(self.real, directory / "seen"))
        self.path.chmod(0o755)

    def call(
        self, verb: str, container: str, configuration: JsonObject, *, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Execute the plugin, and kill it with its children after `timeout_s`."""
        env = {"CNI_COMMAND": verb, "CNI_CONTAINERID": container, "PATH": "/usr/bin:/bin"}
        stdin = json.dumps({"cniVersion": "1.0.0", "name": "lan", "type": "bridge", **configuration})
        pipe = subprocess.PIPE
        with subprocess.Popen([self.path], env=env, stdin=pipe, stdout=pipe, text=True, process_group=0) as process:
            try:
                stdout, _ = process.communicate(stdin, timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess([self.path], process.returncode, stdout)

    @property
    def calls(self) -> list[str]:
        """Return the calls that the real plugin received."""
        file = self.real / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """An unreliable plugin."""
    return Plugin(tmp_path)


@pytest.mark.parametrize(
    ("fault", "calls"),
    [(Fault.FAILS_BEFORE, ["DEL one", "DEL two"]), (Fault.FAILS_AFTER, ["DEL one"] * 2 + ["DEL two"] * 2)],
)
def test_the_first_deletion_fails(plugin: Plugin, fault: Fault, calls: list[str]) -> None:
    """It fails once for each container ID, before or after the real plugin runs, with a CNI error."""
    for container in ("one", "two"):
        failed = plugin.call("DEL", container, goes_wrong("bridge", fault))
        assert failed.returncode == 1
        assert json.loads(failed.stdout.splitlines()[-1])["msg"] == fault.value
        assert plugin.call("DEL", container, goes_wrong("bridge", fault)).returncode == 0
    assert plugin.calls == calls


def test_an_addition_that_hangs(plugin: Plugin) -> None:
    """It runs until it is killed, and the real plugin is not executed; DEL is."""
    with pytest.raises(subprocess.TimeoutExpired):
        plugin.call("ADD", "one", goes_wrong("bridge", Fault.HANGS_IN_ADD), timeout_s=1)
    assert plugin.call("DEL", "one", goes_wrong("bridge", Fault.HANGS_IN_ADD)).returncode == 0
    assert plugin.calls == ["DEL one"]


def test_a_slow_addition(plugin: Plugin) -> None:
    """It takes its time, and succeeds; DEL does not take it."""
    began = time.monotonic()
    for verb in ("ADD", "DEL"):
        assert plugin.call(verb, "one", goes_wrong("bridge", Fault.SLOW_ADD)).returncode == 0
    assert time.monotonic() - began >= 1.5
    assert plugin.calls == ["ADD one", "DEL one"]


@pytest.mark.parametrize("configuration", [{}, goes_wrong("host-local", Fault.FAILS_BEFORE)])
def test_an_unaffected_plugin_is_passed_through(plugin: Plugin, configuration: JsonObject) -> None:
    """Its configuration has no fault, or has one for the IPAM plugin, which receives the same configuration."""
    assert plugin.call("DEL", "one", configuration).returncode == 0
    assert plugin.calls == ["DEL one"]


def test_other_verbs_are_passed_through(plugin: Plugin) -> None:
    """ADD, CHECK and VERSION reach the real plugin."""
    for verb in ("ADD", "CHECK", "VERSION"):
        assert plugin.call(verb, "one", goes_wrong("bridge", Fault.FAILS_BEFORE)).stdout == '{"cniVersion": "1.0.0"}\n'
    assert plugin.calls == ["ADD one", "CHECK one", "VERSION one"]
