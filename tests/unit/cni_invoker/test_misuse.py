# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A caller's mistakes are found before anything runs; what programs may rely on."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni_invoker import (
    Attachment,
    CniError,
    ConfigurationDirectories,
    Execution,
    Limits,
    NetworkConfigurationList,
    Result,
    Runtime,
    read_configuration,
    run_preflight,
)
from cni_invoker.errors import BadConfiguration, BadResult
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, LIMITS, RESULT, THREE, network

LIST = b'{"name": "blue", "cniVersion": "1.1.0", "plugins": [{"type": "first"}]}'


async def test_strings_and_paths_are_alike(plugins: FakePlugins, tmp_path: Path) -> None:
    """Each path may be a string, a single directory need not be in a list, and limits have defaults."""
    (tmp_path / "10-blue.conflist").write_bytes(LIST)
    runtime = Runtime(str(plugins.directory), lock_dir=str(tmp_path / "lock"), running_dir=str(tmp_path / "running"))
    blue = ConfigurationDirectories(str(tmp_path)).index().find("blue")
    assert read_configuration(str(tmp_path / "10-blue.conflist")) == blue
    given = Attachment(container_id="c1", ifname="eth0", netns=Path("/run/netns/c1"), args={"IP": "10.1.2.3"})
    assert given == replace(given, netns="/run/netns/c1", args=(("IP", "10.1.2.3"),))
    await runtime.add(blue, given)
    assert [command.environment["CNI_ARGS"] for command in plugins.commands if command.verb == "ADD"] == ["IP=10.1.2.3"]


def deep(levels: int) -> dict[str, Any]:
    """A document of so many levels."""
    document: dict[str, Any] = {}
    for _ in range(levels):
        document = {"deeper": document}
    return document


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, deep(300), deep(5000), b"bytes"])
def test_documents_that_are_not_json(value: Any) -> None:  # noqa: ANN401  # of any type
    """They are refused when they are given, with an error of the library, as if they came from a file."""
    plugin: Any = {"type": "first", "key": value}
    named = {"name": "blue", "cniVersion": "1.1.0"}
    with pytest.raises(BadConfiguration, match=r"not JSON|nested too deeply"):
        NetworkConfigurationList.from_document({**named, "plugins": [plugin]})
    with pytest.raises(BadConfiguration, match=r"not JSON|nested too deeply"):
        NetworkConfigurationList.from_plugin_document({**named, **plugin})
    with pytest.raises(BadResult, match=r"not JSON|nested too deeply"):
        Result.from_document({**RESULT, "key": value})


def test_reserved_keys_in_a_file_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key that only a runtime may set is dropped from the request, and the file is named in a warning."""
    file = tmp_path / "blue.conflist"
    file.write_bytes(LIST.replace(b'"first"', b'"first", "prevResult": {}, "cni.dev/x": 1'))
    read_configuration(file)
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["event"]) == (logging.WARNING, "configuration.reserved_keys")
    facts = record.__dict__
    assert (facts["file"], facts["plugin"], facts["keys"]) == (str(file), "first", "prevResult, cni.dev/x")


def test_no_plugin_could_run() -> None:
    """Such a limit is refused."""
    with pytest.raises(ValueError, match="executions is 0"):
        Limits(executions=0)


async def test_reserved_keys_are_in_the_preflight(runtime: Runtime) -> None:
    """The report about a list warns of them."""
    report = await run_preflight(runtime, THREE)
    assert report.all_warnings == ("second: only a runtime may set prevResult; that is not passed on",)
    assert report.is_good


def raise_error(_: Execution) -> None:
    """Observe an execution, and raise."""
    raise RuntimeError("the observer is broken")


async def test_an_observer_that_raises_aborts_nothing(plugins: FakePlugins, caplog: pytest.LogCaptureFixture) -> None:
    """The operation completes, and the exception is logged."""
    runtime = Runtime(plugins.directory, LIMITS, observer=raise_error)
    result = await runtime.add(THREE, ATTACHMENT)
    await runtime.delete(THREE, ATTACHMENT, result)
    reports = [record for record in caplog.records if record.__dict__["event"] == "plugin.not_observed"]
    assert len(reports) == 6
    assert "the observer is broken" in str(reports[0].exc_info)


async def test_the_log_has_the_facts(plugins: FakePlugins, caplog: pytest.LogCaptureFixture) -> None:
    """Each execution is logged with plugin, verb, container, outcome and duration."""
    caplog.set_level(logging.DEBUG, "cni_invoker")
    plugins.install("bad", ADD={"error": {"code": 100, "msg": "no"}})
    with pytest.raises(CniError):
        await Runtime(plugins.directory, LIMITS).add(network({"type": "first"}, {"type": "bad"}), ATTACHMENT)
    records = [record.__dict__ for record in caplog.records if record.__dict__["event"] == "plugin.executed"]
    facts = [
        tuple(record[key] for key in ("plugin", "verb", "container_id", "ifname", "outcome")) for record in records
    ]
    assert facts == [
        ("first", "ADD", "some-container-id", "eth0", "success"),
        ("bad", "ADD", "some-container-id", "eth0", "PluginFailed"),
    ]
    assert all(record["duration_ms"] > 0 for record in records)


def test_a_result_cannot_be_changed() -> None:
    """Neither through the document that it was made from, nor through the one that it gives."""
    given: dict[str, Any] = {**RESULT, "ips": [{"address": "10.1.2.3/24"}]}
    result = Result.from_document(given)
    given["ips"].clear()
    document: Any = result.document
    document["ips"][0]["address"] = "10.6.6.6/24"
    document["dns"] = {}
    assert result.document == RESULT
    assert result == Result.from_document(RESULT)
