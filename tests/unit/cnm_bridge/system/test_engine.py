# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests to an engine over a real Unix socket; a missing answer is an error, and does not hang."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonValue, render_json
from cnm_bridge.core.errors import EngineRefused, EngineUnavailable
from cnm_bridge.system.engine import Engine

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(
    path: Path, networks: Handler, *, path_of_networks: str = "/{api}/networks/{id}", method: str = "GET"
) -> web.AppRunner:
    """Start an engine that answers requests for its version, and those for networks with `networks`."""

    async def version(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.json_response({"ApiVersion": "1.41", "Version": "20.10.24"})

    app = web.Application()
    app.router.add_get("/version", version)
    app.router.add_route(method, path_of_networks, networks)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    return runner


async def ask(path: Path, networks: Handler, timeout_s: float = 5) -> str | None:
    """Ask such an engine for the name of network `n1`."""
    runner = await serve(path, networks)
    try:
        return await Engine(f"unix://{path}", timeout_s).network_name("n1")
    finally:
        await runner.cleanup()


_LOOK = (
    "import sys; from cnm_bridge.system.engine import Engine; "
    "print(*(Engine(address, 1.0).is_hidden() for address in sys.argv[1:]))"
)
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

    async def networks(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.json_response({"message": "network n1 not found"}, status=404)

    assert await ask(tmp_path / "s", networks) is None


async def test_an_invalid_docker_host_is_an_error() -> None:
    """An invalid `--docker-host` is handled like an engine that does not run."""
    with pytest.raises(EngineUnavailable, match="nonsense"):
        await Engine("nonsense", 1).network_name("n1")


@pytest.mark.parametrize("containers", [{}, {"Containers": None}, {"Containers": "none"}])
async def test_a_network_without_endpoints_in_the_answer_is_an_error(
    tmp_path: Path, containers: dict[str, object]
) -> None:
    """A missing or invalid list of endpoints does not mean that the network has none."""

    async def networks(request: web.Request) -> web.Response:
        network = {"Id": request.match_info["id"], "Name": "blue", "Scope": "local", **containers}
        return web.json_response(network)

    with pytest.raises(EngineUnavailable, match="Containers"):
        await ask(tmp_path / "s", networks)


@pytest.mark.parametrize(("containers", "name"), [({}, "blue"), (None, None)], ids=["this host's", "the swarm's"])
async def test_a_network_of_a_swarm(tmp_path: Path, containers: dict[str, object] | None, name: str | None) -> None:
    """A manager describes networks that this host does not have, without their options: such an answer says nothing."""

    async def networks(request: web.Request) -> web.Response:
        network = {"Id": request.match_info["id"], "Name": "blue", "Scope": "swarm", "Containers": containers}
        return web.json_response(network)

    assert await ask(tmp_path / "s", networks) == name


async def test_the_subnets_of_all_networks(tmp_path: Path) -> None:
    """Only what the IPAM of Docker uses counts: not the null driver, and not a family that is switched off."""
    networks = [
        {"Id": "n1", "Name": "bridge", "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}, {"Subnet": "fd17::/64"}]}},
        {"Id": "n2", "Name": "host", "IPAM": {"Config": None}},
        {"Id": "n3", "Name": "blue", "IPAM": {"Driver": "null", "Config": [{"Subnet": "0.0.0.0/0"}]}},
        {"Id": "n4", "Name": "four", "EnableIPv6": False, "IPAM": {"Config": [{"Subnet": "fd18::/64"}]}},
    ]

    async def listed(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.json_response(networks)

    runner = await serve(tmp_path / "s", listed, path_of_networks="/{api}/networks")
    try:
        found = await Engine(f"unix://{tmp_path}/s", 5).subnets()
    finally:
        await runner.cleanup()
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

    runner = await serve(tmp_path / "s", streamed, path_of_networks="/{api}/events")
    try:
        await Engine(f"unix://{tmp_path}/s", 5).follow(lambda _: None, lambda: seen.append("made"), seen.append)
    finally:
        await runner.cleanup()
    assert seen == ["made", "c1", "c2"]


async def test_a_container_is_taken_off_a_network(tmp_path: Path) -> None:
    """Without force, and the engine's error is one of its own kind."""
    asked: list[object] = []

    async def disconnect(request: web.Request) -> web.Response:
        asked.append((request.path, await request.json()))
        if len(asked) > 1:
            return web.json_response({"message": "container c1 is not connected to network n1"}, status=403)
        return web.Response()

    runner = await serve(tmp_path / "s", disconnect, path_of_networks="/{api}/networks/{id}/disconnect", method="POST")
    try:
        engine = Engine(f"unix://{tmp_path}/s", 5)
        await engine.disconnect("n1", "c1")
        with pytest.raises(EngineRefused, match="is not connected"):
            await engine.disconnect("n1", "c1")
    finally:
        await runner.cleanup()
    assert asked == [("/v1.41/networks/n1/disconnect", {"Container": "c1"})] * 2


async def test_an_older_engine_in_its_place(tmp_path: Path) -> None:
    """A connection that stays open asks for the version of the API again after a refusal."""
    versions = iter(("1.51", "1.41"))
    seen: list[str] = []

    async def version(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.json_response({"ApiVersion": next(versions)})

    async def network(request: web.Request) -> web.Response:
        seen.append(request.match_info["api"])
        if seen[-1] != "v1.41":
            return web.json_response({"message": "client version is too new"}, status=400)
        return web.json_response({"Id": "n1", "Name": "blue", "Driver": "x", "Scope": "local", "Containers": {}})

    app = web.Application()
    app.router.add_get("/version", version)
    app.router.add_get("/{api}/networks/{id}", network)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "s").start()
    engine = Engine(f"unix://{tmp_path}/s", 5, stays_open=True)
    try:
        with pytest.raises(EngineRefused, match="too new"):
            await engine.network_name("n1")
        assert [await engine.network_name("n1") for _ in range(2)] == ["blue", "blue"]
        assert seen == ["v1.51", "v1.41", "v1.41"]
    finally:
        await engine.close()
        await runner.cleanup()


VERSION: JsonValue = {"ApiVersion": "1.41"}

QUESTIONS: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "info": lambda engine: engine.identity(),
    "networks": lambda engine: engine.network_ids("cni-bridge"),
    "networks/n1": lambda engine: engine.find_network("n1"),
}


@asynccontextmanager
async def answering(path: Path, answers: dict[str, JsonValue], *, status: int = 200) -> AsyncIterator[Engine]:
    """Serve answers by path, including `version`; break the connection for other paths."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = request.path.lstrip("/").removeprefix("v1.41/")
        if asked not in answers:
            assert request.transport is not None
            request.transport.abort()
        return web.Response(
            body=render_json(answers.get(asked)),
            headers={"Content-Type": "application/json"},  # as dockerd does
            status=200 if asked == "version" else status,
        )

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    try:
        yield Engine(f"unix://{path}", 5)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("shape", [None, [], "text", 7, [None], [[]], {}, {"ID": None}], ids=repr)
async def test_an_invalid_answer_is_an_error(tmp_path: Path, question: str, shape: JsonValue) -> None:
    """A proxy in front of the engine may answer anything; an empty list of networks is valid."""
    async with answering(tmp_path / "s", {"version": VERSION, question: shape}) as engine:
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
    async with answering(tmp_path / "s", {"version": VERSION, "info": shape}, status=500) as engine:
        with pytest.raises(EngineUnavailable, match="Docker Engine at"):
            await engine.identity()


async def test_invalid_events_end_following(tmp_path: Path) -> None:
    """`follow` returns without an error."""
    reports = []
    async with answering(tmp_path / "s", {"version": VERSION, "info": [], "events": None}) as engine:
        await engine.follow(lambda _: reports.append("up"), lambda: reports.append("network"), reports.append)
    assert reports in ([], ["up"])  # the stream may end first


async def test_a_missing_socket_is_an_error(tmp_path: Path) -> None:
    """The error has the kernel's message, without those of the libraries."""
    with pytest.raises(EngineUnavailable) as caught:
        await Engine(f"unix://{tmp_path}/none", 5).identity()
    assert str(caught.value) == f"Docker Engine at unix://{tmp_path}/none cannot be reached: No such file or directory"


async def test_a_stale_socket_is_an_error(tmp_path: Path) -> None:
    """The socket of a killed engine refuses connections."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    with pytest.raises(EngineUnavailable) as caught:
        await Engine(f"unix://{tmp_path}/s", 5).identity()
    assert str(caught.value) == f"Docker Engine at unix://{tmp_path}/s cannot be reached: Connection refused"


async def test_a_closed_tcp_port_is_an_error() -> None:
    """The error has the address and "Connection refused"."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(EngineUnavailable) as caught:
            await Engine(host, 5).identity()
    assert str(caught.value) == f"Docker Engine at {host} cannot be reached: Connection refused"


async def test_a_broken_connection_is_an_error(tmp_path: Path) -> None:
    """The error says that there was no answer."""
    async with answering(tmp_path / "s", {"version": VERSION}) as engine:
        with pytest.raises(EngineUnavailable) as caught:
            await engine.identity()
    assert str(caught.value) == f"Docker Engine at unix://{tmp_path}/s closed the connection without an answer"


async def test_a_missing_answer_is_an_error(tmp_path: Path) -> None:
    """The error has the time limit."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        with pytest.raises(EngineUnavailable) as caught:
            await Engine(f"unix://{tmp_path}/s", 0.2).identity()
    assert str(caught.value) == f"Docker Engine at unix://{tmp_path}/s did not answer within 0.2 s"


async def test_the_message_of_the_engine_is_in_the_error(tmp_path: Path) -> None:
    """The error has status and message."""
    async with answering(
        tmp_path / "s", {"version": VERSION, "info": {"message": "disk on fire"}}, status=500
    ) as engine:
        with pytest.raises(EngineUnavailable) as caught:
            await engine.identity()
    assert str(caught.value) == f"Docker Engine at unix://{tmp_path}/s answered with status 500: disk on fire"
