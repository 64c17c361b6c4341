# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Any invalid answer is `EngineUnavailable`, with a text that says what is wrong."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonValue, render_json
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.system.engine import Engine

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
