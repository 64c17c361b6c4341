# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about a plugin's environment and standard input."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_list, get_object, get_str, get_strings
from cni_invoker import Attachment, Runtime, TraceContext
from cni_invoker.errors import InvalidParameter
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, LIMITS, Scene, network

__all__ = ["RUNNERS"]


async def environment(case: Case, scene: Scene) -> None:
    """The runtime sets CNI's variables, each once; all others are inherited."""
    call = get_object(case.inputs, "call")
    inherited = {key: str(value) for key, value in get_object(case.inputs, "process_env").items()}
    seen = scene.directory / "environ"
    scene.script("foo", f"cat /proc/self/environ >{seen}", "echo '{}'")
    runtime = Runtime([scene.plugins.directory], LIMITS, environment={**os.environ, **inherited, "OTHER": "kept"})
    attachment = Attachment(
        container_id=get_str(call, "container_id"),
        ifname=get_str(call, "ifname"),
        netns=get_str(call, "netns"),
        args=tuple((str(key), str(value)) for key, value in map(_pair, get_list(call, "args"))),
    )
    await runtime.add(network({"type": "foo"}), attachment)
    lines = seen.read_bytes().decode().split("\0")
    wanted = {**get_object(case.expect, "env"), "CNI_PATH": str(scene.plugins.directory)}
    for key, value in wanted.items():
        assert [line for line in lines if line.startswith(f"{key}=")] == [f"{key}={value}"]
    assert "OTHER=kept" in lines


async def trace(case: Case, scene: Scene) -> None:
    """A plugin receives the current trace span in its environment; without a span the variables are absent."""
    spans: list[TraceContext | None] = [None]
    runtime = Runtime([scene.plugins.directory], LIMITS, find_trace=lambda: spans[0])
    scene.install("foo")
    await runtime.add(network({"type": "foo"}), ATTACHMENT)
    span = TraceContext(
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", tracestate="a=b", baggage="c=d"
    )
    spans[0] = span
    await runtime.add(network({"type": "foo"}), ATTACHMENT)
    names = set(get_strings(case.expect, "env_added"))
    without, with_span = (command.environment for command in scene.commands)
    assert not names & set(without)
    assert {name: with_span[name] for name in names} == span.environment


async def arguments(case: Case, scene: Scene) -> None:
    """Arguments that CNI_ARGS cannot express are refused before anything runs; others arrive in their order."""
    assert get_str(case.expect, "runtime").endswith('reject keys/values containing ";" or "="')
    scene.install("foo")
    for key, value in (("K;L", "v"), ("K=L", "v"), ("K", "v;w"), ("K", "v=w"), ("", "v")):
        with pytest.raises(InvalidParameter):
            await scene.runtime().add(network({"type": "foo"}), replace(ATTACHMENT, args=((key, value),)))
    assert not scene.commands
    await scene.runtime().add(
        network({"type": "foo"}), replace(ATTACHMENT, args=(("IgnoreUnknown", "1"), ("FOO", "BAR")))
    )
    (command,) = scene.commands
    assert command.environment["CNI_ARGS"] == "IgnoreUnknown=1;FOO=BAR"


async def injected(case: Case, scene: Scene) -> None:
    """A plugin receives its own keys, the list's name and version, and the values of its capabilities."""
    config = dict(get_object(case.inputs, "config"))
    name, version = str(config.pop("name")), str(config.pop("cniVersion"))
    attachment = replace(ATTACHMENT, capability_args=get_object(case.inputs, "capability_args"))
    scene.install("noop")
    await scene.runtime().add(network(config, name=name, version=version), attachment)
    assert get_object(case.expect, "stdin_has").items() <= scene.stdins[0].items()


async def undeclared(case: Case, scene: Scene) -> None:
    """Without a declared capability there is no `runtimeConfig`."""
    assert case.expect["runtimeConfig"] == "absent, not {}"
    declared: tuple[JsonObject, ...] = ({}, {"portMappings": False}, {"other": True})
    scene.install("noop")
    for capabilities in declared:
        await scene.runtime().add(network({"type": "noop", "capabilities": capabilities}), ATTACHMENT)
    assert all("runtimeConfig" not in command.stdin for command in scene.commands)
    assert len(scene.commands) == 3


async def capabilities(_: Case, scene: Scene) -> None:
    """From 1.0.0 on plugins do not receive `capabilities`, as its text requires; before they do, as from libcni."""
    scene.install("noop")
    for version in ("0.4.0", "1.0.0", "1.1.0"):
        plugin: JsonObject = {"type": "noop", "capabilities": {"portMappings": True}}
        await scene.runtime().add(network(plugin, version=version), ATTACHMENT)
    assert ["capabilities" in command.stdin for command in scene.commands] == [True, False, False]
    assert all("runtimeConfig" in command.stdin for command in scene.commands)


async def delegation(case: Case, scene: Scene) -> None:
    """A plugin finds its delegate through CNI_PATH and passes the verb on; the runtime's environment is unchanged."""
    inherited = {"CNI_COMMAND": get_str(case.inputs, "process CNI_COMMAND"), "PATH": os.environ["PATH"]}
    before = dict(inherited)
    scene.install("host-local", ADD={"result": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}})
    scene.install("main", ADD={"delegate": True}, DEL={"delegate": True})
    runtime = Runtime([scene.directory, scene.plugins.directory], LIMITS, environment=inherited)
    delegating = network({"type": "main", "ipam": {"type": "host-local"}})
    result = await runtime.add(delegating, ATTACHMENT)
    await runtime.delete(delegating, ATTACHMENT, result)
    assert [str(ip.address) for ip in result.ips] == ["10.1.2.3/24"]
    assert scene.calls == (("main", "ADD"), ("host-local", "ADD"), ("main", "DEL"), ("host-local", "DEL"))
    assert scene.stdins[1] == scene.stdins[0]
    assert inherited == before


def _pair(value: object) -> tuple[object, object]:
    assert isinstance(value, list)
    key, argument = value
    return key, argument


RUNNERS: Final[Mapping[str, Runner]] = {
    "env-001": environment,
    "env-003": trace,
    "env-004": arguments,
    "stdin-001": injected,
    "stdin-003": undeclared,
    "stdin-004": capabilities,
    "deleg-001": delegation,
}
