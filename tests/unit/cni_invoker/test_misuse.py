# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A caller's mistakes are found before anything runs, and what can be meant in one way only is accepted."""

import copy
import json
import logging
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni_invoker import (
    Attachment,
    CachedRuntime,
    CniError,
    ConfigurationDirectories,
    Execution,
    FileCache,
    Limits,
    MemoryCache,
    NetworkConfigurationList,
    PluginConfiguration,
    Result,
    Runtime,
    read_configuration,
    run_preflight,
)
from cni_invoker.advanced import parse_configuration, parse_result
from cni_invoker.errors import BadConfiguration, BadResult, InvalidParameter
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, LIMITS, RESULT, THREE, network

LIST = b'{"name": "blue", "cniVersion": "1.1.0", "plugins": [{"type": "first"}]}'


async def test_strings_and_paths_are_alike(plugins: FakePlugins, tmp_path: Path) -> None:
    """Each path may be a string, a single directory need not be in a list, and limits have defaults."""
    (tmp_path / "10-blue.conflist").write_bytes(LIST)
    cache = FileCache(str(tmp_path / "cache"))
    runtime = CachedRuntime(Runtime(str(plugins.directory), lock_dir=str(tmp_path / "lock")), cache)
    blue = ConfigurationDirectories(str(tmp_path)).index().find("blue")
    assert read_configuration(str(tmp_path / "10-blue.conflist")) == blue
    given = Attachment(container_id="c1", ifname="eth0", netns=Path("/run/netns/c1"), args={"IP": "10.1.2.3"})
    assert given == replace(given, netns="/run/netns/c1", args=(("IP", "10.1.2.3"),))
    await runtime.add(blue, given)
    assert [command.environment["CNI_ARGS"] for command in plugins.commands if command.verb == "ADD"] == ["IP=10.1.2.3"]


WRONG: list[tuple[str, Callable[[], object]]] = [
    ("container_id must be of type str, not the int 5", lambda: attachment(container_id=5)),
    ("netns must be a str or a Path, not the NoneType None", lambda: attachment(netns=None)),
    ("args must be a mapping such as", lambda: attachment(args="IP=10.1.2.3")),
    ("each item of args must be", lambda: attachment(args={"IP": 5})),
    ("capability_args must be a mapping or Capabilities", lambda: attachment(capability_args=[])),
    ("set is not JSON", lambda: attachment(capability_args={"ips": {"10.1.2.3"}})),
    ("limits must be of type Limits, not the int 5", lambda: anything(Runtime)("/opt/cni/bin", 5)),
    ("each of plugin_dirs must be a str or a Path, not the int 5", lambda: anything(Runtime)([5])),
    ("plugin_dirs must be a path or several, not the NoneType None", lambda: anything(Runtime)(None)),
    ("the limit add_s must be a number, not the str '5'", lambda: anything(Limits)(add_s="5")),
    ("the limit executions is too small: 0", lambda: Limits(executions=0)),
]


def anything(callee: Callable[..., object]) -> Callable[..., Any]:
    """Return a function whose parameters the type checker does not know, as for a caller without one."""
    return callee


def attachment(**wrong: object) -> object:
    """Make an attachment with a wrong value."""
    return anything(Attachment)(**{"container_id": "c1", "ifname": "eth0", "netns": "/run/netns/c1", **wrong})


@pytest.mark.parametrize(("message", "call"), WRONG, ids=[message for message, _ in WRONG])
def test_wrong_types_name_the_parameter(message: str, call: Callable[[], object]) -> None:
    """The error names the parameter, what it must be, and what it is."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert message in str(caught.value)
    assert not isinstance(caught.value, CniError)


VERBS = ("add", "check", "delete", "gc", "status", "negotiate")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("wrong", "hint"), [("blue", "find"), ({"name": "blue"}, "from_document"), (ATTACHMENT, "comes first")]
)
async def test_a_verb_needs_a_list(runtime: Runtime, plugins: FakePlugins, verb: str, wrong: object, hint: str) -> None:
    """What is not a list is refused with a hint, and no plugin runs."""
    more: dict[str, tuple[object, ...]] = {
        "add": (ATTACHMENT,),
        "check": (ATTACHMENT, None),
        "delete": (ATTACHMENT, None),
        "gc": ([],),
    }
    with pytest.raises(TypeError, match=f"network must be of type NetworkConfigurationList, not .*{hint}"):
        await getattr(runtime, verb)(wrong, *more.get(verb, ()))
    if verb in {"add", "check", "delete", "gc"}:
        cached = CachedRuntime(runtime, MemoryCache())
        with pytest.raises(TypeError, match="network must be"):
            await getattr(cached, verb)(wrong, *more[verb][:1])
    assert plugins.commands == ()


async def test_a_result_is_no_document(runtime: Runtime, plugins: FakePlugins) -> None:
    """A document instead of a result is refused with a hint."""
    for verb in ("check", "delete"):
        with pytest.raises(TypeError, match=r"result must be of type Result.*Result\.from_document"):
            await getattr(runtime, verb)(THREE, ATTACHMENT, RESULT)
    assert plugins.commands == ()


def test_a_list_made_by_hand_is_validated() -> None:
    """No verb can receive a list that a file could not have: it cannot be made."""
    (plugin, *_) = THREE.plugins
    for change, error in (
        ({"name": "../../etc"}, InvalidParameter),
        ({"name": 5}, TypeError),
        ({"cni_version": "one"}, InvalidParameter),
        ({"plugins": ()}, BadConfiguration),
        ({"plugins": [plugin]}, TypeError),
        ({"plugins": (plugin.document,)}, TypeError),
        ({"document": {"name": "another", "plugins": []}}, BadConfiguration),
    ):
        with pytest.raises(error):
            anything(replace)(THREE, **change)
    for wrong, kind in (({"type": "../sh"}, InvalidParameter), ({"type": "other"}, BadConfiguration)):
        with pytest.raises(kind):
            anything(replace)(plugin, **wrong)
    with pytest.raises(TypeError):
        anything(PluginConfiguration)(type="a", ipam_type=None, capabilities=["mac"], document={"type": "a"})


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


def test_documents_are_plain_json() -> None:
    """The standard library can write each document, also with numbers that Python would write differently."""
    text = b'{"cniVersion": "1.1.0", "x": 1.10, "y": [-0, 1E-7], "ips": [{"address": "10.1.2.3/24"}]}'
    result = parse_result(text, "1.1.0")
    blue = parse_configuration(LIST[:-1] + b', "x": 1.10}', "blue.conflist")
    assert json.loads(json.dumps(blue.document))["x"] == 1.1
    for value in (result, blue):
        assert json.loads(json.dumps(value.document)) == value.document
        for other in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):  # noqa: S301  # our own
            assert other == value


def test_reserved_keys_in_a_file_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key that only a runtime may set is dropped from the request, and the file is named in a warning."""
    file = tmp_path / "blue.conflist"
    file.write_bytes(LIST.replace(b'"first"', b'"first", "prevResult": {}, "cni.dev/x": 1'))
    read_configuration(file)
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["event"]) == (logging.WARNING, "configuration.reserved_keys")
    facts = record.__dict__
    assert (facts["file"], facts["plugin"], facts["keys"]) == (str(file), "first", "prevResult, cni.dev/x")


async def test_reserved_keys_are_in_the_preflight(runtime: Runtime) -> None:
    """The report about a list warns of them."""
    report = await run_preflight(runtime, THREE)
    assert report.all_warnings == ("second: only a runtime may set prevResult; that is not passed on",)
    assert report.is_good


class Raising:
    """An observer that raises."""

    def on_execution(self, _: Execution) -> None:
        """Raise."""
        raise RuntimeError("the observer is broken")


async def test_an_observer_that_raises_aborts_nothing(plugins: FakePlugins, caplog: pytest.LogCaptureFixture) -> None:
    """The operation completes, and the exception is logged."""
    runtime = Runtime(plugins.directory, LIMITS, observer=Raising())
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
