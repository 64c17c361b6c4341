# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Other ways to find and execute plugins."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cni_invoker import CachedRuntime, MemoryCache, PluginCall, PluginFailed, Runtime, Sandbox
from cni_invoker.advanced import FakeExec, NsenterExec, RecordingExec
from cni_invoker.documents.jsontypes import JsonValue
from cni_invoker.errors import PluginNotFound
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, LIMITS, RESULT, THREE, network

NSENTER = """#!/bin/sh
# Records its options, and runs the command below another root.
while [ "$1" != -- ]; do echo "$1" >> "@LOG@"; shift; done
exec "@ROOT@$2"
"""


async def test_a_fake_needs_no_plugins() -> None:
    """All operations work without any file, and an exit status is a failure."""

    def answer(call: PluginCall) -> tuple[int, JsonValue]:
        if call.verb == "VERSION":
            return 0, {"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}
        if call.plugin == "broken":
            return 1, {"code": 100, "msg": "no"}
        return 0, {"cniVersion": json.loads(call.stdin)["cniVersion"], "ips": [{"address": "10.1.2.3/24"}]}

    runtime = Runtime("/nowhere", LIMITS, plugin_exec=FakeExec(answer))
    sandbox = Sandbox(CachedRuntime(runtime, MemoryCache()), "c1")
    (added,) = await sandbox.add("/run/netns/c1", [network({"type": "any"})])
    assert str(added.result.ips[0].address) == "10.1.2.3/24"
    await sandbox.check()
    await sandbox.delete()
    with pytest.raises(PluginFailed, match="no"):
        await runtime.add(network({"type": "broken"}), ATTACHMENT)


async def test_executions_are_recorded(plugins: FakePlugins) -> None:
    """Each has its inputs and how it ended."""
    recording = RecordingExec()
    runtime = Runtime(plugins.directory, LIMITS, plugin_exec=recording)
    await runtime.add(THREE, ATTACHMENT)
    assert [(call.plugin, call.verb, ended.status) for call, ended in recording.calls] == [
        ("first", "ADD", 0),
        ("second", "ADD", 0),
        ("third", "ADD", 0),
    ]
    assert json.loads(recording.calls[0][1].stdout) == RESULT
    assert json.loads(recording.calls[1][0].stdin)["prevResult"] == RESULT


async def test_plugins_run_in_other_namespaces(
    plugins: FakePlugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are found below the other root, and nsenter runs them by their path there."""
    programs, log = tmp_path / "programs", tmp_path / "log"
    programs.mkdir()
    (programs / "nsenter").write_text(NSENTER.replace("@LOG@", str(log)).replace("@ROOT@", str(tmp_path)))
    (programs / "nsenter").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    runtime = Runtime("/bin", LIMITS, plugin_exec=NsenterExec(1, root=tmp_path))
    assert runtime.find_plugin("first") == Path("/bin/first")
    with pytest.raises(PluginNotFound):
        runtime.find_plugin("fourth")
    await runtime.add(network({"type": "first"}), ATTACHMENT)
    assert plugins.calls == (("first", "ADD"),)
    assert log.read_text().split() == ["--target=1", "--mount", "--net"]


def test_anything_else_is_refused() -> None:
    """A plain function is no `PluginExec`."""
    make: Callable[..., Any] = Runtime
    with pytest.raises(TypeError, match="plugin_exec must be of type PluginExec"):
        make("/nowhere", plugin_exec=print)
