# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests to an engine over a real Unix socket; a missing answer is an error, and does not hang."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonObject, JsonValue
from cnm_bridge.core.errors import EngineRefused, EngineUnavailable
from cnm_bridge.system.engine import Engine
from tests.answering_engine import Handler, answering


async def name_of(path: Path, network: JsonValue, status: int = 200) -> str | None:
    """Ask an engine that says this of network `n1` for its name."""
    async with answering(path, {"networks/n1": network}, status=status) as engine:
        return await engine.network_name("n1")


_LOOK = "import sys; from cnm_bridge.system.sockets import is_peer_hidden; print(*map(is_peer_hidden, sys.argv[1:]))"
_APART = ("unshare", "--user", "--map-root-user", "--pid", "--fork")


def look(*addresses: str, within: Sequence[str] = ()) -> str:
    """Return whether a process, started by a command, finds the engine at each address hidden."""
    command = (*within, sys.executable, "-c", _LOOK, *addresses)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_an_engine_outside_of_the_pid_namespace_is_hidden(tmp_path: Path) -> None:
    """Without an engine, or over TCP, that is not known, and counts as visible."""
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "s"))
        engine.listen()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(tmp_path / "dead"))
            addresses = (f"unix://{tmp_path}/{name}" for name in ("s", "dead", "none"))
            assert look(*addresses, "tcp://127.0.0.1:1") == "False False False False"
        if subprocess.run((*_APART, "true"), check=False).returncode:
            pytest.skip("this user may not make user namespaces")
        assert look(f"unix://{tmp_path}/s", within=_APART) == "True"


async def test_a_network_that_is_being_created_has_no_name(tmp_path: Path) -> None:
    """The engine answers 404 until CreateNetwork has been answered."""
    assert await name_of(tmp_path / "s", {"message": "network n1 not found"}, status=404) is None


async def test_an_invalid_docker_host_is_an_error() -> None:
    """An invalid `--docker-host` is handled like an engine that does not run."""
    with pytest.raises(EngineUnavailable, match="nonsense"):
        await Engine("nonsense", 1).network_name("n1")


@pytest.mark.parametrize("containers", [{}, {"Containers": None}, {"Containers": "none"}])
async def test_a_network_without_endpoints_in_the_answer_is_an_error(tmp_path: Path, containers: JsonObject) -> None:
    """A missing or invalid list of endpoints does not mean that the network has none."""
    with pytest.raises(EngineUnavailable, match="Containers"):
        await name_of(tmp_path / "s", {"Id": "n1", "Name": "blue", "Scope": "local", **containers})


@pytest.mark.parametrize(("containers", "name"), [({}, "blue"), (None, None)], ids=["this host's", "the swarm's"])
async def test_a_network_of_a_swarm(tmp_path: Path, containers: JsonObject | None, name: str | None) -> None:
    """A manager describes networks that this host does not have, without their options: such an answer says nothing."""
    network: JsonObject = {"Id": "n1", "Name": "blue", "Scope": "swarm", "Containers": containers}
    assert await name_of(tmp_path / "s", network) == name


async def test_the_subnets_of_all_networks(tmp_path: Path) -> None:
    """Only what the IPAM of Docker uses counts: not the null driver, and not a family that is switched off."""
    networks: JsonValue = [
        {"Id": "n1", "Name": "bridge", "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}, {"Subnet": "fd17::/64"}]}},
        {"Id": "n2", "Name": "host", "IPAM": {"Config": None}},
        {"Id": "n3", "Name": "blue", "IPAM": {"Driver": "null", "Config": [{"Subnet": "0.0.0.0/0"}]}},
        {"Id": "n4", "Name": "four", "EnableIPv6": False, "IPAM": {"Config": [{"Subnet": "fd18::/64"}]}},
    ]
    async with answering(tmp_path / "s", {"networks": networks}) as engine:
        found = await engine.subnets()
    assert [(name, str(subnet)) for name, subnet in found] == [("bridge", "172.17.0.0/16"), ("bridge", "fd17::/64")]


async def test_events_of_networks(tmp_path: Path) -> None:
    """A network was made, or a container connected; what a proxy adds is left out."""
    events = [
        {"Type": "network", "Action": "create", "Actor": {"ID": "n1", "Attributes": {"name": "blue"}}},
        {"Type": "network", "Action": "connect", "Actor": {"ID": "n1", "Attributes": {"container": "c1"}}},
        {"Type": "network", "Action": "connect", "Actor": "c3"},
        {"Type": "network", "Action": "connect", "Actor": {"ID": "n1", "Attributes": {"container": "c2"}}},
    ]

    seen: list[str] = []

    async def streamed(request: web.Request) -> web.StreamResponse:
        assert json.loads(request.query["filters"]) == {"type": ["network"], "event": ["create", "connect"]}
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for event in events:
            await response.write(f"{json.dumps(event)}\n".encode())
        async with asyncio.timeout(5):
            while "c2" not in seen:  # noqa: ASYNC110 - nothing sets an event
                await asyncio.sleep(0.01)
        return response

    async with answering(tmp_path / "s", {"events": streamed}) as engine:
        await engine.follow(lambda _: None, lambda: seen.append("made"), seen.append)
    assert seen == ["made", "c1", "c2"]


async def test_a_container_is_taken_off_a_network(tmp_path: Path) -> None:
    """Without force, and the engine's error is one of its own kind."""
    asked: list[object] = []

    async def disconnect(request: web.Request) -> web.Response:
        asked.append((request.path, await request.json()))
        if len(asked) > 1:
            return web.json_response({"message": "container c1 is not connected to network n1"}, status=403)
        return web.Response()

    async with answering(tmp_path / "s", {"networks/n1/disconnect": disconnect}) as engine:
        await engine.disconnect("n1", "c1")
        with pytest.raises(EngineRefused, match="is not connected"):
            await engine.disconnect("n1", "c1")
    assert asked == [("/v1.41/networks/n1/disconnect", {"Container": "c1"})] * 2


async def test_an_older_engine_in_its_place(tmp_path: Path) -> None:
    """A connection that stays open asks for the version of the API again after a refusal."""
    versions = iter(("1.51", "1.41"))
    seen: list[str] = []

    async def version(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.json_response({"ApiVersion": next(versions)})

    async def network(request: web.Request) -> web.Response:
        seen.append(request.path)
        if request.path != "/v1.41/networks/n1":
            return web.json_response({"message": "client version is too new"}, status=400)
        return web.json_response({"Id": "n1", "Name": "blue", "Driver": "x", "Scope": "local", "Containers": {}})

    answers: dict[str, JsonValue | Handler] = {"version": version, "networks/n1": network}
    async with answering(tmp_path / "s", answers, stays_open=True) as engine:
        with pytest.raises(EngineRefused, match="too new"):
            await engine.network_name("n1")
        assert [await engine.network_name("n1") for _ in range(2)] == ["blue", "blue"]
    assert seen == [f"/v{api}/networks/n1" for api in ("1.51", "1.41", "1.41")]


QUESTIONS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "info": lambda engine: engine.identity(),
    "networks": lambda engine: engine.network_ids("cni-bridge"),
    "networks/n1": lambda engine: engine.find_network("n1"),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("shape", [None, [], "text", 7, [None], [[]], {}, {"ID": None}], ids=repr)
async def test_an_invalid_answer_is_an_error(tmp_path: Path, question: str, shape: JsonValue) -> None:
    """A proxy in front of the engine may answer anything; an empty list of networks is valid."""
    async with answering(tmp_path / "s", {question: shape}) as engine:
        if (question, shape) == ("networks", []):
            assert await QUESTIONS[question](engine) == ()
            return
        with pytest.raises(EngineUnavailable, match=f"Docker Engine at unix://{tmp_path}/s"):
            await QUESTIONS[question](engine)


@pytest.mark.parametrize("shape", [None, [], "text", {}, {"ApiVersion": 7}], ids=repr)
async def test_an_invalid_version_is_an_error(tmp_path: Path, shape: JsonValue) -> None:
    """The version is requested first."""
    async with answering(tmp_path / "s", {"version": shape, "info": {"ID": "x"}}) as engine:
        with pytest.raises(EngineUnavailable, match="Docker Engine at"):
            await engine.identity()


@pytest.mark.parametrize("shape", [None, [], {}, {"message": 7}], ids=repr)
async def test_an_error_without_a_message_is_an_error(tmp_path: Path, shape: JsonValue) -> None:
    """An engine's error has a message; that of a proxy may have none."""
    async with answering(tmp_path / "s", {"info": shape}, status=500) as engine:
        with pytest.raises(EngineUnavailable, match="Docker Engine at"):
            await engine.identity()


async def test_invalid_events_end_following(tmp_path: Path) -> None:
    """`follow` returns without an error."""
    reports = []
    async with answering(tmp_path / "s", {"info": [], "events": None}) as engine:
        await engine.follow(lambda _: reports.append("up"), lambda: reports.append("network"), reports.append)
    assert reports in ([], ["up"])  # the stream may end first


async def error_of(path: Path, answers: Mapping[str, JsonValue]) -> str:
    """Return the error of a question that an engine does not answer, without its address."""
    async with answering(path, answers, status=500) as engine:
        with pytest.raises(EngineUnavailable) as caught:
            await engine.identity()
    return str(caught.value).removeprefix(f"Docker Engine at unix://{path} ")


async def test_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    """The error says how: with the kernel's message, without those of libraries; with the limit; with its message."""
    with socket.socket(socket.AF_UNIX) as stale, socket.socket() as unused, socket.socket(socket.AF_UNIX) as listening:
        stale.bind(str(tmp_path / "stale"))
        stale.close()
        unused.bind(("127.0.0.1", 0))
        listening.bind(str(tmp_path / "silent"))
        listening.listen()
        for host, what in (
            (f"unix://{tmp_path}/none", "cannot be reached: No such file or directory"),
            (f"unix://{tmp_path}/stale", "cannot be reached: Connection refused"),
            (f"tcp://127.0.0.1:{unused.getsockname()[1]}", "cannot be reached: Connection refused"),
            (f"unix://{tmp_path}/silent", "did not answer within 0.2 s"),
        ):
            with pytest.raises(EngineUnavailable) as caught:
                await Engine(host, 0.2).identity()
            assert str(caught.value) == f"Docker Engine at {host} {what}"
    assert await error_of(tmp_path / "s", {}) == "closed the connection without an answer"
    burning: JsonObject = {"message": "disk on fire"}
    assert await error_of(tmp_path / "t", {"info": burning}) == ("answered with status 500: disk on fire")
