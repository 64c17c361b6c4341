# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Other ways to find and execute plugins."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cni_invoker import (
    CachedRuntime,
    Ended,
    JsonObject,
    MemoryCache,
    PluginCall,
    PluginExec,
    PluginFailed,
    Runtime,
    Sandbox,
)
from cni_invoker.advanced import NsenterExec
from cni_invoker.errors import PluginNotFound
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, LIMITS, network

NSENTER = """#!/bin/sh
# Records its options, and runs the command below another root.
while [ "$1" != -- ]; do echo "$1" >> "@LOG@"; shift; done
exec "@ROOT@$2"
"""


class Fake(PluginExec):
    """Executes nothing."""

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return a path, whether there is a file or not."""
        return Path(*directories[:1], plugin_type)

    async def run(self, call: PluginCall) -> Ended:
        """Answer, after a turn of the event loop."""
        await asyncio.sleep(0)
        document: JsonObject = {"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}
        if call.verb != "VERSION":
            document = {"cniVersion": json.loads(call.stdin)["cniVersion"], "ips": [{"address": "10.1.2.3/24"}]}
        is_broken = call.plugin == "broken" and call.verb != "VERSION"
        printed = {"code": 100, "msg": "no"} if is_broken else document
        return Ended(
            status=int(is_broken),
            timed_out=False,
            stdout=json.dumps(printed).encode(),
            stdout_complete=True,
            stderr=b"",
            duration_s=0.0,
        )


async def test_a_program_may_execute_them_itself() -> None:
    """All operations work without any file, and an exit status is a failure."""
    runtime = Runtime("/nowhere", LIMITS, plugin_exec=Fake())
    sandbox = Sandbox(CachedRuntime(runtime, MemoryCache()), "c1")
    (added,) = await sandbox.add("/run/netns/c1", [network({"type": "any"})])
    assert str(added.result.ips[0].address) == "10.1.2.3/24"
    await sandbox.check()
    await sandbox.delete()
    with pytest.raises(PluginFailed, match="no"):
        await runtime.add(network({"type": "broken"}), ATTACHMENT)


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
