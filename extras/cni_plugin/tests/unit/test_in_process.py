# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin that answers in the process of its runtime: as its executable does."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import Limits, NetworkConfigurationList, PluginFailed, Runtime, installed_plugins, run_preflight
from cni_plugin import Plugin
from extras.cni_plugin.tests.unit.written_plugin import CONFIG, WrittenPlugin
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT

PROGRAM = """from cni_plugin import Call, CallError, ErrorCode, Plugin
def add(call):
    if "fail" in call.config:
        raise KeyError(call.config["fail"])
    return {"ips": [{"address": call.args.get("IP", "10.1.0.9") + "/24"}]}
def check(call):
    if not call.prev_result.ips:
        raise CallError(ErrorCode.INTERNAL, "it has lost its address", call.ifname)
def gc(call):
    raise CallError(120, " ".join(f"{one.container_id}/{one.ifname}" for one in call.valid_attachments))
def status(call):
    raise CallError(ErrorCode.NOT_AVAILABLE, "full")
PLUGIN = Plugin(add=add, check=check, gc=gc, status=status)
if __name__ == "__main__":
    PLUGIN.run()
"""
RESULT: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.9/24"}]}
VALID: JsonObject = {"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}


def load() -> Plugin:
    """The plugin of that program, in this process."""
    namespace: dict[str, object] = {"__name__": "loaded"}
    exec(PROGRAM, namespace)  # noqa: S102  # the same text is the executable
    plugin = namespace["PLUGIN"]
    assert isinstance(plugin, Plugin)
    return plugin


@pytest.mark.parametrize(
    ("command", "stdin", "variables"),
    [
        ("VERSION", b"", {}),
        ("VERSION", {"cniVersion": "0.4.0"}, {}),
        ("ADD", CONFIG, {"CNI_ARGS": "IP=10.1.0.7"}),
        ("ADD", {**CONFIG, "cniVersion": "0.2.0"}, {}),
        ("ADD", {**CONFIG, "fail": "here"}, {}),
        ("ADD", b"{", {}),
        ("ADD", {"cniVersion": "1.0.0"}, {}),
        ("ADD", {**CONFIG, "cniVersion": "9.0.0"}, {}),
        ("ADD", CONFIG, {"CNI_NETNS": None, "CNI_CONTAINERID": None}),
        ("ADD", CONFIG, {"CNI_NETNS": "/proc/self/ns/net"}),
        ("ADD", CONFIG, {"CNI_NETNS": "/proc/self/ns/net", "CNI_NETNS_OVERRIDE": "1"}),
        ("ADD", CONFIG, {"CNI_ARGS": "broken"}),
        ("CHECK", CONFIG, {}),
        ("CHECK", {**CONFIG, "prevResult": RESULT}, {}),
        ("CHECK", {**CONFIG, "prevResult": {"cniVersion": "1.1.0"}}, {}),
        ("DEL", CONFIG, {"CNI_NETNS": None}),
        ("GC", CONFIG, {}),
        ("GC", {**CONFIG, **VALID}, {}),
        ("STATUS", CONFIG, {}),
        ("REBOOT", CONFIG, {}),
    ],
)
def test_both_ways_answer_the_same(
    execute: WrittenPlugin, command: str, stdin: Mapping[str, object] | bytes, variables: Mapping[str, str | None]
) -> None:
    """Status, answer and whether there is a traceback; nothing of this process's own environment plays a part."""
    executed = execute(PROGRAM, command, stdin, **variables)
    status, stdout, stderr = load().answer(*execute.call(command, stdin, **variables))
    assert (status, stdout.decode()) == (executed.status, executed.stdout)
    assert (b"KeyError: 'here'" in stderr) == ("KeyError: 'here'" in executed.stderr)
    assert bool(stderr) == bool(executed.stderr)


def test_the_environment_is_that_of_the_call(fakes: FakePlugins, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executable that the plugin executes gets it too."""
    monkeypatch.setenv("CNI_CONTAINERID", "of-this-process")
    plugin = Plugin(add=lambda call: call.ipam_add())
    runtime = Runtime(fakes.directory, in_process={"ours": plugin.answer})
    ours: JsonObject = {**CONFIG, "ipam": {"type": "addresses"}}
    result = asyncio.run(runtime.add(NetworkConfigurationList.from_document({**CONFIG, "plugins": [ours]}), ATTACHMENT))
    assert [str(ip.address) for ip in result.ips] == ["10.1.0.9/24"]
    (command,) = fakes.commands
    assert command.environment["CNI_CONTAINERID"] == ATTACHMENT.container_id


async def test_preflight_needs_no_executable(tmp_path: Path) -> None:
    """But for an IPAM plugin that another plugin executes."""
    runtime = Runtime(tmp_path, Limits(), in_process={"ours": load().answer})
    own: JsonObject = {"type": "ours", "ipam": {"type": "ours"}}
    report = await run_preflight(runtime, NetworkConfigurationList.from_document({**CONFIG, "plugins": [own]}))
    assert report.is_good
    assert report.render_text().splitlines()[1].startswith("  ok       ours                 in process; CNI 0.1.0, ")
    delegated: JsonObject = {"type": "bridge", "ipam": {"type": "ours"}}
    report = await run_preflight(runtime, NetworkConfigurationList.from_document({**CONFIG, "plugins": [delegated]}))
    assert report.all_problems[1] == f"ours (ipam): not found in {tmp_path}"


def distribution(directory: Path, name: str, value: str) -> None:
    """Install a distribution that offers a plugin."""
    info = directory / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[cni_invoker.plugins]\n{name} = {value}\n")


def test_installed_plugins(fakes: FakePlugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are loaded at the first call. The calls of one that cannot be loaded fail."""
    (tmp_path / "loaded_at_first_call.py").write_text(PROGRAM)
    distribution(tmp_path, "ours", "loaded_at_first_call:PLUGIN.answer")
    distribution(tmp_path, "broken", "not_installed:PLUGIN.answer")
    monkeypatch.syspath_prepend(tmp_path)
    plugins = installed_plugins()
    assert {"ours", "broken"} <= plugins.keys()
    runtime = Runtime(fakes.directory, in_process=plugins)
    assert "loaded_at_first_call" not in sys.modules
    assert asyncio.run(runtime.version("ours")).supported
    assert "loaded_at_first_call" in sys.modules
    with pytest.raises(PluginFailed, match="No module named 'not_installed'"):
        asyncio.run(runtime.version("broken"))


def test_a_plugin_that_breaks_the_contract(fakes: FakePlugins) -> None:
    """One that raises has failed, as an executable that crashes."""

    def answer(environment: Mapping[str, str], stdin: bytes) -> tuple[int, bytes, bytes]:
        raise KeyError(environment["CNI_IFNAME"], stdin)

    runtime = Runtime(fakes.directory, in_process={"ours": answer})
    with pytest.raises(PluginFailed, match="KeyError: \\('eth0'"):
        asyncio.run(runtime.add(NetworkConfigurationList.from_document({**CONFIG, "plugins": [CONFIG]}), ATTACHMENT))
