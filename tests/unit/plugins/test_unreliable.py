# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A real plugin whose first DEL of each container ID goes wrong, and no other call."""

import json
import subprocess
from pathlib import Path

import pytest

from spec import JsonObject
from tests.plugins.unreliable import Fault, goes_wrong, render_unreliable

REAL = """#!/bin/sh
cat >/dev/null
echo "$CNI_COMMAND $CNI_CONTAINERID" >>"${0%/*}/calls"
echo '{"cniVersion": "1.0.0"}'
"""


class Plugin:
    """An unreliable `bridge` before a real one that notes its calls."""

    def __init__(self, directory: Path) -> None:
        self.real = directory / "real"
        self.real.mkdir()
        (self.real / "bridge").write_text(REAL)
        (self.real / "bridge").chmod(0o755)
        self.path = directory / "bridge"
        self.path.write_text(render_unreliable(self.real, directory / "seen"))
        self.path.chmod(0o755)

    def call(self, verb: str, container: str, configuration: JsonObject) -> subprocess.CompletedProcess[str]:
        """Call it."""
        env = {"CNI_COMMAND": verb, "CNI_CONTAINERID": container, "PATH": "/usr/bin:/bin"}
        stdin = json.dumps({"cniVersion": "1.0.0", "name": "lan", "type": "bridge", **configuration})
        return subprocess.run([self.path], check=False, env=env, input=stdin, capture_output=True, text=True)

    @property
    def calls(self) -> list[str]:
        """What the real one was asked."""
        file = self.real / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """Give the plugin."""
    return Plugin(tmp_path)


@pytest.mark.parametrize(
    ("fault", "calls"),
    [(Fault.FAILS_BEFORE, ["DEL one", "DEL two"]), (Fault.FAILS_AFTER, ["DEL one"] * 2 + ["DEL two"] * 2)],
)
def test_the_first_deletion_fails(plugin: Plugin, fault: Fault, calls: list[str]) -> None:
    """Once for each container ID, before the real plugin or after it; with an error as CNI has it."""
    for container in ("one", "two"):
        failed = plugin.call("DEL", container, goes_wrong("bridge", fault))
        assert failed.returncode == 1
        assert json.loads(failed.stdout.splitlines()[-1])["msg"] == fault.value
        assert plugin.call("DEL", container, goes_wrong("bridge", fault)).returncode == 0
    assert plugin.calls == calls


@pytest.mark.parametrize("configuration", [{}, goes_wrong("host-local", Fault.FAILS_BEFORE)])
def test_a_plugin_that_does_not_go_wrong(plugin: Plugin, configuration: JsonObject) -> None:
    """Its own configuration says nothing, or the IPAM plugin is meant, which gets the same one."""
    assert plugin.call("DEL", "one", configuration).returncode == 0
    assert plugin.calls == ["DEL one"]


def test_other_verbs(plugin: Plugin) -> None:
    """They are the real plugin's."""
    for verb in ("ADD", "CHECK", "VERSION"):
        assert plugin.call(verb, "one", goes_wrong("bridge", Fault.FAILS_BEFORE)).stdout == '{"cniVersion": "1.0.0"}\n'
    assert plugin.calls == ["ADD one", "CHECK one", "VERSION one"]
