# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's plugin protocol: dockerd's client accepts every answer, and an error changes nothing."""

import asyncio
import math
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import pytest
from aiohttp import ClientSession, UnixConnector, web
from aiohttp.test_utils import TestClient, make_mocked_request
from pytest_aiohttp.plugin import AiohttpClient

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import RecordNotFound
from cni_invoker.errors import BadConfiguration
from cnm_bridge.core.errors import Refused
from cnm_bridge.server.rpc import CallsUnderWay, Method, make_app

NETWORK, ENDPOINT = "a1" * 32, "b2" * 32
BODY = {"NetworkID": NETWORK}

Client = TestClient[web.Request, web.Application]
Answer = Callable[[JsonObject, int | None], Awaitable[JsonObject]] | JsonObject


class Recorder:
    """Answers a call, and records its body."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.bodies: list[JsonObject] = []

    async def __call__(self, body: JsonObject, _: int | None) -> JsonObject:
        """Return `{"Value": 1}`, or raise."""
        self.bodies.append(body)
        if self.error:
            raise self.error
        return {"Value": 1}


async def serve(aiohttp_client: AiohttpClient, answer: Answer, schema: str | None = "cnm/NetworkReference") -> Client:
    """Return a client of an application with one method."""
    methods = [Method(name="NetworkDriver.Test", schema=schema, answer=answer)]
    return await aiohttp_client(make_app(methods, CallsUnderWay()))


async def call(client: Client, data: bytes | BytesIO | None = None, json: JsonValue = None) -> JsonObject:
    """Make the call as dockerd does, and check what holds for every answer."""
    async with client.post("/NetworkDriver.Test", data=data, json=json) as response:
        assert response.status == 200
        assert response.headers["Connection"] == "close"
        body = await response.json()
    assert isinstance(body, dict)
    return body


async def test_a_valid_call_is_answered(aiohttp_client: AiohttpClient) -> None:
    """A call that matches its schema is answered; unknown keys are passed on."""
    recorder = Recorder()
    client = await serve(aiohttp_client, recorder)
    assert await call(client, json={**BODY, "Since": "29"}) == {"Value": 1}
    assert recorder.bodies == [{**BODY, "Since": "29"}]


@pytest.mark.parametrize(
    ("body", "message"),
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
async def test_an_invalid_body_is_rejected_without_effect(
    aiohttp_client: AiohttpClient, body: bytes, message: str
) -> None:
    """The error says what is wrong, and the method is not called; dockerd repeats calls with an empty body."""
    recorder = Recorder()
    answer = await call(await serve(aiohttp_client, recorder), data=body)
    assert message in str(answer["Err"])
    assert "NetworkDriver.Test" in str(answer["Err"])
    assert not recorder.bodies


async def test_a_very_large_body_is_parsed_in_a_thread(aiohttp_client: AiohttpClient) -> None:
    """Ten thousand ports are no error; the event loop is free meanwhile."""
    recorder = Recorder()
    threads: list[int] = []

    def answer(body: JsonObject, caller_pid: int | None) -> Awaitable[JsonObject]:
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


@pytest.mark.parametrize(
    "error",
    [
        Refused("no ports"),
        RecordNotFound("endpoint", "e1"),
        BadConfiguration("no plugins in list", file=Path("/x.conf")),
    ],
)
async def test_the_text_of_a_known_error_is_the_answer(aiohttp_client: AiohttpClient, error: Exception) -> None:
    """An error of any layer reaches the user of `docker` unchanged."""
    assert await call(await serve(aiohttp_client, Recorder(error)), json=BODY) == {"Err": str(error)}


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (
            'failed to set bridge addr: "cni0" already has an IP address different from 10.1.0.1/16',
            "`cni-bridge doctor`",
        ),
        (
            "failed to allocate for range 0: no IP addresses available in range set: 10.1.0.2-10.1.0.3",
            "`cni-bridge ls`",
        ),
        ("there is no such list", ""),
    ],
)
async def test_errors_of_known_kinds_end_with_the_next_command(
    aiohttp_client: AiohttpClient, text: str, step: str
) -> None:
    """The plugin's text is before it; other errors stay as they are."""
    answer = await call(await serve(aiohttp_client, Recorder(Refused(text))), json=BODY)
    said, _, hint = str(answer["Err"]).partition("; ")
    assert (said, step in hint, bool(hint)) == (text, True, bool(step))


async def test_the_consequence_of_an_error_follows_its_text(aiohttp_client: AiohttpClient) -> None:
    """What Docker does next may be worse than the error, and is known to the user before."""
    method = Method(
        name="NetworkDriver.Test",
        schema=None,
        answer=Recorder(Refused("it is full")),
        consequence=lambda: "Docker forgets it",
    )
    client = await aiohttp_client(make_app([method], CallsUnderWay()))
    assert await call(client) == {"Err": "it is full; Docker forgets it"}


async def test_an_unexpected_error_is_logged(aiohttp_client: AiohttpClient, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer has no details; the traceback is in the log."""
    answer = await call(await serve(aiohttp_client, Recorder(ZeroDivisionError("secret"))), json=BODY)
    assert "internal error" in str(answer["Err"])
    assert "secret" not in str(answer["Err"])
    captured = capsys.readouterr()
    assert "secret" in captured.out + captured.err


async def test_an_unknown_method_is_404(aiohttp_client: AiohttpClient) -> None:
    """From that status Docker knows that a driver does not implement a call."""
    client = await serve(aiohttp_client, Recorder())
    async with client.post("/IpamDriver.RequestPool") as response:
        assert response.status == 404
        assert "RequestPool" in (await response.json())["Err"]


async def test_a_call_that_does_nothing_never_fails(aiohttp_client: AiohttpClient) -> None:
    """An error, even for a repetition without a body, would prevent a container from starting. No schema is needed."""
    client = await serve(aiohttp_client, {"Value": {}}, schema="cnm/WhichDoesNotExist")
    for body in (b"", b"nonsense", b'{"NetworkID": 7}'):
        assert await call(client, data=body) == {"Value": {}}


@pytest.mark.parametrize(("answer", "count"), [(Recorder(), 1), ({"Value": 1}, 0)])
async def test_a_caller_that_is_not_visible_is_reported(
    aiohttp_client: AiohttpClient, answer: Answer, count: int
) -> None:
    """A call that does nothing may be anyone's, and is not. The kernel gives a caller over TCP the process ID 0."""
    reports: list[None] = []
    method = Method(name="NetworkDriver.Test", schema=None, answer=answer)
    client = await aiohttp_client(make_app([method], CallsUnderWay(), on_hidden=lambda: reports.append(None)))
    await call(client)
    assert len(reports) == count


async def test_a_lost_connection_is_no_hidden_caller() -> None:
    """Its call is executed with an unknown caller, and what is known of processes stays."""

    async def answer(_: JsonObject, caller_pid: int | None) -> JsonObject:
        return {"Value": caller_pid}

    method = Method(name="NetworkDriver.Test", schema=None, answer=answer)
    app = make_app([method], CallsUnderWay(), on_hidden=lambda: pytest.fail("it is reported"))
    handle = next(iter(app.router.routes())).handler
    request = make_mocked_request("POST", "/NetworkDriver.Test")
    request.protocol.transport = None
    response = await handle(request)
    assert isinstance(response, web.Response)
    assert response.body == b'{"Value":null}'


async def test_a_call_completes_although_its_client_has_gone(tmp_path: Path) -> None:
    """A call that may have changed something runs to completion, and a stop of the daemon waits for it."""
    begun, proceed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls = CallsUnderWay()

    async def answer(body: JsonObject, _: int | None) -> JsonObject:
        begun.set()
        await proceed.wait()
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
        async with session.get("http://x/") as other:  # after the closed connection was noticed
            assert other.status == 404
        assert calls.all == (f"NetworkDriver.Test {NETWORK}",)
        assert calls.quiet_s(ENDPOINT) == 0
        proceed.set()
        async with asyncio.timeout(10):
            await ended.wait()
            await asyncio.sleep(0)  # the call ends in this turn
        assert not list(calls.all)
    assert 0 < calls.quiet_s(ENDPOINT) < math.inf


async def test_a_running_call_names_network_and_endpoint(aiohttp_client: AiohttpClient) -> None:
    """During the call Docker is idle for that endpoint, and for no other."""
    calls = CallsUnderWay()

    async def answer(_: JsonObject, __: int | None) -> JsonObject:
        return {"all": list(calls.all), "quiet": [calls.quiet_s(endpoint) > 0 for endpoint in (ENDPOINT, NETWORK)]}

    method = Method(name="NetworkDriver.Test", schema="cnm/EndpointReference", answer=answer)
    client = await aiohttp_client(make_app([method], calls))
    answered = await client.post("/NetworkDriver.Test", json={**BODY, "EndpointID": ENDPOINT})
    expected = {"all": [f"NetworkDriver.Test {NETWORK} {ENDPOINT}"], "quiet": [True, False]}
    assert await answered.json(content_type=None) == expected


async def test_a_call_of_docker_without_a_body_counts_as_activity(tmp_path: Path) -> None:
    """Whether a call is Docker's does not depend on its schema; its caller is known, too."""
    calls = CallsUnderWay()

    async def answer(_: JsonObject, caller_pid: int | None) -> JsonObject:
        return {"calls": list(calls.all), "isQuiet": calls.quiet_s(ENDPOINT) > 0, "caller": caller_pid}

    async with (
        _served(tmp_path / "s", answer, calls, schema=None),
        ClientSession(connector=UnixConnector(f"{tmp_path}/s")) as session,
        session.post("http://x/NetworkDriver.Test") as response,
    ):
        expected = {"calls": ["NetworkDriver.Test"], "isQuiet": False, "caller": os.getpid()}
        assert await response.json() == expected


async def test_an_incomplete_request_is_no_call(tmp_path: Path) -> None:
    """A client that disconnects in the middle of its body has started nothing, and no error is logged."""
    calls = CallsUnderWay()
    recorder = Recorder()
    async with _served(tmp_path / "s", recorder, calls):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(b'POST /NetworkDriver.Test HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{"NetworkID"')
        await writer.drain()
        await _post(tmp_path / "s")  # once this is answered, the incomplete request has been read
        assert not list(calls.all)
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""
    assert recorder.bodies == [BODY]


async def _post(path: Path) -> None:
    """Make a call on a new connection, and wait for the answer."""
    async with (
        ClientSession(connector=UnixConnector(str(path))) as session,
        session.post("http://docker/NetworkDriver.Test", json=BODY) as response,
    ):
        assert await response.json() == {"Value": 1}


@asynccontextmanager
async def _served(
    path: Path, answer: Answer, calls: CallsUnderWay, schema: str | None = "cnm/NetworkReference"
) -> AsyncIterator[None]:
    app = make_app([Method(name="NetworkDriver.Test", schema=schema, answer=answer)], calls)
    runner = web.AppRunner(app, handler_cancellation=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    yield
    await runner.cleanup()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The current time, as the only element of a list."""
    now = [100.0]
    monkeypatch.setattr("cnm_bridge.server.rpc.time.monotonic", lambda: now[0])
    return now


def test_docker_is_not_idle_during_a_call() -> None:
    """A call about an endpoint counts for every other endpoint, but not for that one."""
    calls = CallsUnderWay()
    assert calls.quiet_s("a") == math.inf
    with calls.counted("Leave", "a"):
        assert (calls.quiet_s("a"), calls.quiet_s("b")) == (math.inf, 0)
        with calls.counted("Join", "b"):
            assert calls.quiet_s("a") == calls.quiet_s("b") == 0
            assert calls.all == ("Leave", "Join")
    with calls.counted("CreateNetwork", None):
        assert calls.quiet_s("a") == 0


def test_the_idle_time_begins_with_the_last_call_about_another_endpoint(clock: list[float]) -> None:
    """It does so however many calls about the same endpoint came before and after it."""
    calls = CallsUnderWay()
    for endpoint_id in ("c", "d", "c", "e", "e"):
        with calls.counted("Join", endpoint_id):
            clock[0] += 1
    clock[0] += 10
    assert {key: calls.quiet_s(key) for key in "cdef"} == {"c": 10, "d": 10, "e": 12, "f": 10}
