# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's plugin protocol: every answer is one that dockerd's client takes, and an error changes nothing."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import pytest
from aiohttp import ClientSession, UnixConnector, web
from aiohttp.test_utils import TestClient
from pytest_aiohttp.plugin import AiohttpClient

from cni_invoker import BadConfiguration
from cnm_bridge.api import MAX_BODY_BYTES, CallsUnderWay, Connections, Method, make_app
from cnm_bridge.errors import Refused
from spec import JsonObject, JsonValue
from state import RecordNotFound

NETWORK, ENDPOINT = "a1" * 32, "b2" * 32
BODY = {"NetworkID": NETWORK}

Client = TestClient[web.Request, web.Application]
Answer = Callable[[JsonObject, int], Awaitable[JsonObject]] | JsonObject


class Recorder:
    """Answers a call, and remembers with what it was called."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.bodies: list[JsonObject] = []

    async def __call__(self, body: JsonObject, _: int) -> JsonObject:
        """Answer `{"Value": 1}`, or fail."""
        self.bodies.append(body)
        if self.error:
            raise self.error
        return {"Value": 1}


async def serve(aiohttp_client: AiohttpClient, answer: Answer, schema: str | None = "cnm/NetworkReference") -> Client:
    """Return a client of an application with one method."""
    methods = [Method(name="NetworkDriver.Test", schema=schema, answer=answer)]
    return await aiohttp_client(make_app(methods, CallsUnderWay(), Connections()))


async def call(client: Client, data: bytes | BytesIO | None = None, json: JsonValue = None) -> JsonObject:
    """Call the method as dockerd does, and check what every answer must have."""
    async with client.post("/NetworkDriver.Test", data=data, json=json) as response:
        assert response.status == 200
        assert response.headers["Connection"] == "close"
        body = await response.json()
    assert isinstance(body, dict)
    return body


async def test_answer(aiohttp_client: AiohttpClient) -> None:
    """A call that fits its schema is carried out and answered; unknown keys do no harm."""
    recorder = Recorder()
    client = await serve(aiohttp_client, recorder)
    assert await call(client, json={**BODY, "Since": "29"}) == {"Value": 1}
    assert recorder.bodies == [{**BODY, "Since": "29"}]


async def test_content_type_does_not_matter(aiohttp_client: AiohttpClient) -> None:
    """Docker sends no Content-Type at all."""
    client = await serve(aiohttp_client, Recorder())
    assert await call(client, data=b'{"NetworkID":"%s"}\n' % NETWORK.encode()) == {"Value": 1}


async def test_handshake_has_no_body(aiohttp_client: AiohttpClient) -> None:
    """A method without a schema is answered whatever its body, mostly none."""
    client = await serve(aiohttp_client, Recorder(), schema=None)
    assert await call(client) == {"Value": 1}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no body"),
        (b"{", "line 1, column 2"),
        (b"\xff", "not UTF-8"),
        (b"[]", "not of type 'object'"),
        (b"{}", "'NetworkID' is a required property"),
        (b'{"NetworkID": 7}', "NetworkID: 7 is not of type 'string'"),
        (b'{"NetworkID": "../../etc/passwd"}', "NetworkID"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
async def test_bad_bodies_are_refused_without_effect(aiohttp_client: AiohttpClient, body: bytes, says: str) -> None:
    """What cannot be understood is answered with what is wrong, and nothing is done: a repeated call comes empty."""
    recorder = Recorder()
    answer = await call(await serve(aiohttp_client, recorder), data=body)
    assert says in str(answer["Err"])
    assert "NetworkDriver.Test" in str(answer["Err"])
    assert not recorder.bodies


async def test_ten_thousand_ports(aiohttp_client: AiohttpClient) -> None:
    """They are no error, and are read beside the event loop; the call is carried out in it."""
    recorder = Recorder()
    threads: list[int] = []

    def answer(body: JsonObject, caller_pid: int) -> Awaitable[JsonObject]:
        threads.append(threading.get_ident())
        return recorder(body, caller_pid)

    client = await serve(aiohttp_client, answer, schema="cnm/ProgramExternalConnectivity")
    ports: list[JsonValue] = [{"Proto": 6, "Port": port, "HostPort": port} for port in range(10000, 20001)]
    body: JsonObject = {**BODY, "EndpointID": ENDPOINT, "Options": {"com.docker.network.portmap": ports}}
    assert await call(client, json=body) == {"Value": 1}
    assert recorder.bodies == [body]
    assert threads != [threading.get_ident()]
    ports[7000] = {"Proto": 6, "Port": 0}
    assert "portmap[7000].Port: 0 is less than the minimum" in str((await call(client, json=body))["Err"])
    assert len(recorder.bodies) == 1


async def test_oversized_bodies_are_refused(aiohttp_client: AiohttpClient) -> None:
    """A body beyond the limit is not even read to its end."""
    recorder = Recorder()
    answer = await call(await serve(aiohttp_client, recorder), data=BytesIO(b" " * (MAX_BODY_BYTES + 1)))
    assert "larger than" in str(answer["Err"])
    assert not recorder.bodies


@pytest.mark.parametrize(
    "error",
    [
        Refused("no ports"),
        RecordNotFound("endpoint", "e1"),
        BadConfiguration("no plugins in list", file=Path("/x.conf")),
    ],
)
async def test_known_errors_are_answered_as_they_are(aiohttp_client: AiohttpClient, error: Exception) -> None:
    """The text of an error, from whichever layer, reaches the user of `docker` unchanged."""
    assert await call(await serve(aiohttp_client, Recorder(error)), json=BODY) == {"Err": str(error)}


async def test_a_bug_is_not_shown_but_logged(aiohttp_client: AiohttpClient, capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected error is answered without its traceback, which is in the log."""
    answer = await call(await serve(aiohttp_client, Recorder(ZeroDivisionError("secret"))), json=BODY)
    assert "internal error" in str(answer["Err"])
    assert "secret" not in str(answer["Err"])
    captured = capsys.readouterr()
    assert "secret" in captured.out + captured.err


async def test_unknown_methods_do_not_exist(aiohttp_client: AiohttpClient) -> None:
    """404 is how Docker knows that a driver lacks a call."""
    client = await serve(aiohttp_client, Recorder())
    async with client.post("/IpamDriver.RequestPool") as response:
        assert response.status == 404
        assert "RequestPool" in (await response.json())["Err"]


async def test_a_call_that_does_nothing_never_fails(aiohttp_client: AiohttpClient) -> None:
    """An error from it, even to a repetition without body, would keep a container from starting."""
    client = await serve(aiohttp_client, {"Value": {}})
    for body in (b"", b"nonsense", b'{"NetworkID": 7}'):
        assert await call(client, data=body) == {"Value": {}}


async def test_a_call_knows_its_caller(tmp_path: Path) -> None:
    """The kernel tells which process has connected."""

    async def answer(_: JsonObject, caller_pid: int) -> JsonObject:
        return {"Value": caller_pid}

    async with (
        _served(tmp_path / "s", answer, CallsUnderWay()),
        ClientSession(connector=UnixConnector(f"{tmp_path}/s")) as session,
        session.post("http://x/NetworkDriver.Test", json=BODY) as response,
    ):
        assert await response.json() == {"Value": os.getpid()}


async def test_a_client_that_goes_away_stops_nothing(tmp_path: Path) -> None:
    """What has begun to change the world runs to its end, and is waited for."""
    begun, go_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls = CallsUnderWay()

    async def answer(body: JsonObject, _: int) -> JsonObject:
        begun.set()
        await go_on.wait()
        ended.set()
        return body

    async with (
        _served(tmp_path / "s", answer, calls),
        ClientSession(connector=UnixConnector(f"{tmp_path}/s")) as session,
    ):

        async def post() -> None:
            async with session.post("http://x/NetworkDriver.Test", json=BODY):
                pytest.fail("it is answered")

        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(post())
            await begun.wait()
            calling.cancel()
        async with session.get("http://x/") as other:  # by its answer the end of the connection before was seen
            assert other.status == 404
        assert calls.all == (f"NetworkDriver.Test {NETWORK}",)
        assert calls.quiet_s(ENDPOINT) == 0
        go_on.set()
        async with asyncio.timeout(10):
            await calls.wait_none()
        assert ended.is_set()
    assert 0 < calls.quiet_s(ENDPOINT) < 10


async def test_what_a_call_is_about(aiohttp_client: AiohttpClient) -> None:
    """While it is under way Docker is quiet about all but one endpoint."""
    calls = CallsUnderWay()

    async def answer(_: JsonObject, __: int) -> JsonObject:
        return {"all": list(calls.all), "quiet": [calls.quiet_s(endpoint) > 0 for endpoint in (ENDPOINT, NETWORK)]}

    method = Method(name="NetworkDriver.Test", schema="cnm/EndpointReference", answer=answer)
    client = await aiohttp_client(make_app([method], calls, Connections()))
    answered = await client.post("/NetworkDriver.Test", json={**BODY, "EndpointID": ENDPOINT})
    told = {"all": [f"NetworkDriver.Test {NETWORK} {ENDPOINT}"], "quiet": [True, False]}
    assert await answered.json(content_type=None) == told


async def test_how_things_stand_is_no_call_of_dockers(aiohttp_client: AiohttpClient) -> None:
    """Whoever watches the daemon keeps it from nothing that it does while Docker is quiet."""
    calls = CallsUnderWay()

    async def answer(_: JsonObject, __: int) -> JsonObject:
        return {"calls": list(calls.all), "isQuiet": calls.quiet_s(ENDPOINT) > 0}

    app = make_app([Method(name="CniBridge.Status", schema=None, answer=answer)], calls, Connections())
    client = await aiohttp_client(app)
    answered = await client.post("/CniBridge.Status")
    assert await answered.json(content_type=None) == {"calls": [], "isQuiet": True}


async def test_half_a_request_is_no_call(tmp_path: Path) -> None:
    """A client that breaks off in the middle of its body has begun nothing, and is no bug of ours."""
    calls = CallsUnderWay()
    recorder = Recorder()
    async with _served(tmp_path / "s", recorder, calls):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(b'POST /NetworkDriver.Test HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"NetworkID"')
        await writer.drain()
        await _post(tmp_path / "s")  # by then the half before it was read
        assert calls.all == ()
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""
    assert recorder.bodies == [BODY]


async def _post(path: Path) -> None:
    """Make a call on a connection of its own, and wait for its answer."""
    async with (
        ClientSession(connector=UnixConnector(str(path))) as session,
        session.post("http://docker/NetworkDriver.Test", json=BODY) as response,
    ):
        assert await response.json() == {"Value": 1}


@asynccontextmanager
async def _served(path: Path, answer: Answer, calls: CallsUnderWay) -> AsyncIterator[None]:
    app = make_app(
        [Method(name="NetworkDriver.Test", schema="cnm/NetworkReference", answer=answer)], calls, Connections()
    )
    runner = web.AppRunner(app, handler_cancellation=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    yield
    await runner.cleanup()
