# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executions are recorded in a file without secrets, and judged again without the plugins."""

import json
import logging
from pathlib import Path

import pytest

from cni_bridge_spec import JsonValue
from cni_invoker import Attachment, FileRecordingExec, PluginFailed, Replayed, Runtime, replay
from cni_invoker.documents.jsontypes import JsonError
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, LIMITS, RESULT, THREE, network


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """Three plugins; the third one fails DEL."""
    plugins = FakePlugins(tmp_path / "bin")
    for name in ("first", "second"):
        plugins.install(name, ADD={"result": RESULT})
    plugins.install("third", ADD={"result": RESULT}, DEL={"error": {"code": 100, "msg": "banana"}, "stderr": "peel\n"})
    return plugins


async def replayed(file: Path) -> list[Replayed]:
    """Return all executions of a recording."""
    return [one async for one in replay(file)]


async def test_a_recording_is_judged_as_the_original(plugins: FakePlugins, tmp_path: Path) -> None:
    """Results and errors are the same when the plugins are gone."""
    file = tmp_path / "recording"
    runtime = Runtime(plugins.directory, LIMITS, plugin_exec=FileRecordingExec(file))
    result = await runtime.add(THREE, ATTACHMENT)
    with pytest.raises(PluginFailed) as failed:
        await runtime.delete(THREE, ATTACHMENT, result)
    for plugin in plugins.directory.iterdir():
        plugin.unlink()
    judged = await replayed(file)
    assert [f"{one.request.verb} {one.request.plugin}" for one in judged] == [
        "ADD first",
        "ADD second",
        "ADD third",
        "DEL third",
        "DEL third",
    ]
    assert [one.result for one in judged[:3]] == [result] * 3
    error = judged[-1].error
    assert isinstance(error, PluginFailed)
    assert (error.code, error.msg, error.stderr_tail) == (failed.value.code, failed.value.msg, failed.value.stderr_tail)
    assert not any(one.hint for one in judged)
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_wrong_prev_result_is_seen(plugins: FakePlugins, tmp_path: Path) -> None:
    """A recording of a defect in a runtime shows it."""
    file = tmp_path / "recording"
    await Runtime(plugins.directory, LIMITS, plugin_exec=FileRecordingExec(file)).add(THREE, ATTACHMENT)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1]["stdin"] = lines[1]["stdin"].replace("10.1.2.3", "10.1.2.4")
    file.write_text("\n".join(map(json.dumps, lines)))
    judged = await replayed(file)
    assert [bool(one.hint) for one in judged] == [False, True, False]
    assert "not what the plugin before it has printed" in str(judged[1])


async def test_secrets_are_not_recorded(plugins: FakePlugins, tmp_path: Path) -> None:
    """Neither those of the configuration nor those of arguments, at any depth; the plugin still receives them."""
    file = tmp_path / "recording"
    secrets: dict[str, JsonValue] = {
        "apiToken": "hunter2",
        "x": [{"Password": "hunter2"}],
        "clientSecret": {"a": "hunter2"},
    }
    attachment = Attachment(
        container_id="c1",
        ifname="eth0",
        netns="/run/netns/c1",
        args={"IgnoreUnknown": "1", "K8S_TOKEN": "hunter2"},
        capability_args={"credentials": "hunter2"},
    )
    plugin: dict[str, JsonValue] = {"type": "first", "capabilities": {"credentials": True}, **secrets}
    await Runtime(plugins.directory, LIMITS, plugin_exec=FileRecordingExec(file)).add(network(plugin), attachment)
    assert plugins.commands[-1].stdin["apiToken"] == "hunter2"
    text = file.read_text()
    assert "hunter2" not in text
    assert "IgnoreUnknown=1;K8S_TOKEN=[redacted]" in text


async def test_a_full_disk_prevents_no_execution(plugins: FakePlugins, caplog: pytest.LogCaptureFixture) -> None:
    """That nothing is recorded is logged."""
    runtime = Runtime(plugins.directory, LIMITS, plugin_exec=FileRecordingExec("/dev/full"))
    with caplog.at_level(logging.WARNING):
        await runtime.add(THREE, ATTACHMENT)
    assert {record.__dict__["event"] for record in caplog.records} == {"execution.not_recorded"}


@pytest.mark.parametrize(
    "line", ["{", "[]", "{}", '{"plugin": "a", "verb": "EAT", "path": "/a", "environment": {}, "stdin": "{}"}']
)
async def test_another_file_is_no_recording(tmp_path: Path, line: str) -> None:
    """It is an error of its own."""
    file = tmp_path / "other"
    file.write_text(line)
    with pytest.raises(JsonError):
        await replayed(file)
