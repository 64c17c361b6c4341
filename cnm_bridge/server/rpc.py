# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's plugin protocol over aiohttp: POST /<method> with a JSON object, answered by a JSON object.

What dockerd's client (moby `pkg/plugins/client.go`) does determines how this server behaves:

* A reply has status 200 and a JSON body; an error is `{"Err": "text"}` in such a reply (IpamDriver: `Error`). Other
  statuses are for methods that do not exist.
* After a transport error the client repeats the call with an *empty body*. Such a call is refused without effect,
  because the first one may have been executed.
* A server that closes an idle connection causes such an error; hence every reply has `Connection: close`.
* A call whose body has arrived runs to completion, even if the client disconnects.
* A lost call is repeated with an empty body, so at a stop every accepted connection is answered. Other connections stay
  in the socket's queue; if systemd owns the socket, the next daemon accepts them.
"""

import asyncio
import math
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from aiohttp import web

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    Validator,
    as_object,
    find_str,
    load_validator,
    parse_json,
    render_json,
)
from cni_bridge_state import StateError
from cni_invoker import CniError
from cnm_bridge.core.errors import BadRequest, BridgeError, KernelError, next_step
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.listening import accepting, running
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.log import traced
from cnm_bridge.system.sockets import find_peer

log = structlog.get_logger()

MAX_BODY_BYTES: Final = 16 << 20
"""`docker run --expose 1-65535` makes a CreateEndpoint of some two million bytes."""

_LARGE_BYTES: Final = 64 << 10
"""A larger request is parsed in a thread: with ten thousand ports, that takes a tenth of a second."""

_READ_LIMIT_S: Final = 10.0
"""Time limit for the body, after the headers."""

_ERROR_CHARACTERS: Final = 8192

_LAST: Final = 2
"""Number of endpoints whose last call is remembered: for any endpoint, one of the two belongs to a different one."""

_ARRIVAL_S: Final = 1.0
"""Time limit for the requests of open connections at the end; dockerd sends its request when it connects."""
_LOOK_S: Final = 0.01

_EXPECTED: Final = (BridgeError, CniError, KernelError, StateError, JsonError)


class CallsUnderWay:
    """The calls that have begun and not ended, and the time since the last one."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[str, str | None]] = {}
        self._ended: dict[str | None, float] = {}

    @contextmanager
    def counted(self, call: str, endpoint_id: str | None) -> Iterator[None]:
        """Track a call while the block runs; one about a network has no endpoint."""
        token = object()
        self._calls[token] = (call, endpoint_id)
        try:
            yield
        finally:
            del self._calls[token]
            self._ended.pop(endpoint_id, None)
            self._ended[endpoint_id] = time.monotonic()
            if len(self._ended) > _LAST:
                del self._ended[next(iter(self._ended))]

    def quiet_s(self, besides: str) -> float:
        """Return the seconds since the last call, ignoring those for one endpoint; 0 while a call is running."""
        if any(endpoint_id != besides for _, endpoint_id in self._calls.values()):
            return 0.0
        ended = [ended for endpoint_id, ended in self._ended.items() if endpoint_id != besides]
        return time.monotonic() - max(ended, default=-math.inf)

    @property
    def all(self) -> tuple[str, ...]:
        """Descriptions of the running calls."""
        return tuple(call for call, _ in self._calls.values())


Answer = Callable[[JsonObject, int | None], Awaitable[JsonObject | bytes]]
"""Takes the body and the PID of the calling process (0 if that is not visible, None if its connection was lost), parses
the body, and returns an awaitable that executes the call and gives the body of the reply: an object, or bytes if it is
rendered already."""


@dataclass(frozen=True, slots=True)
class Method:
    """One call of the plugin protocol.

    Attributes:
        schema: The schema of its body, e.g. `cnm/Join`; None for a call without a body.
        answer: The function that executes it; its synchronous part may run in another thread. For a call that does
            nothing, the body of the reply: such a call never fails, because an error would keep a container from
            starting. So its body is neither read nor validated; its schema only states what dockerd sends.
        consequence: Returns what else an error of the call means for the user, or nothing; it follows the error's text.
        readable: Gives names to the IDs in an error's text; it receives the endpoint of the call, too, if there is one.
    """

    name: str
    schema: str | None
    answer: Answer | JsonObject
    consequence: Callable[[], str] = str
    error_key: str = "Err"
    readable: Callable[[str, str | None], Awaitable[str]] | None = None


def make_app(
    methods: Iterable[Method],
    calls: CallsUnderWay,
    journal: Journal | None = None,
    *,
    on_hidden: Callable[[], None] = lambda: None,
) -> web.Application:
    """Return the application that answers `methods`, and everything else with status 404.

    It calls `on_hidden` for each call of a process that is not visible: it is in a PID namespace outside of this one. A
    call that does nothing may be anyone's, and does not count.
    """
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    for method in methods:
        app.router.add_post(f"/{method.name}", _handler(method, calls, journal or Journal(), on_hidden))
    app.router.add_route("*", "/{path:.*}", _unknown)
    return app


def _handler(
    method: Method, calls: CallsUnderWay, journal: Journal, on_hidden: Callable[[], None]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    is_constant = isinstance(method.answer, Mapping)
    validate = load_validator(method.schema) if method.schema and not is_constant else None

    async def handle(request: web.Request) -> web.Response:
        with traced(rpc=method.name):
            started = time.monotonic()
            caller_pid = None if request.transport is None else find_peer(request.transport.get_extra_info("socket"))
            if caller_pid == 0 and not is_constant:  # constant ones are also called to see if the daemon is ready
                on_hidden()
            reply = await _answer(method, validate, request, calls, caller_pid)
            duration_ms = round((time.monotonic() - started) * 1000, 1)
            bound = structlog.contextvars.get_contextvars()
            ids = {"networkId": bound.get("network_id"), "endpointId": bound.get("endpoint_id")}
            error = None if isinstance(reply, bytes) else reply.get(method.error_key)
            if error is not None:
                log.warning("rpc.refused", duration_ms=duration_ms, error=error)
                journal.add("rpc.refused", rpc=method.name, **ids, durationMs=duration_ms, error=error)
            else:
                log.debug("rpc.answered", duration_ms=duration_ms)
                journal.add("rpc.answered", rpc=method.name, **ids, durationMs=duration_ms)
        return _respond(reply)

    return handle


async def _answer(
    method: Method, validate: Validator | None, request: web.Request, calls: CallsUnderWay, caller_pid: int | None
) -> JsonObject | bytes:
    """Return the reply, or `{"Err": text}` (`error_key`) after an error: the only place where errors become replies."""
    if isinstance(method.answer, Mapping):
        return method.answer
    try:
        data = b"" if validate is None else await _read(method, request)
        body: JsonObject = {} if validate is None else await _parse_body(method, validate, data, calls)
        ids = {"network_id": "NetworkID", "endpoint_id": "EndpointID", "pool_id": "PoolID"}
        known = {name: value for name, key in ids.items() if (value := find_str(body, key))}
        structlog.contextvars.bind_contextvars(**known)
        with calls.counted(" ".join((method.name, *known.values())), known.get("endpoint_id")):
            call = partial(method.answer, body, caller_pid)  # its synchronous part, of a large request in a thread
            return await (await asyncio.to_thread(call) if len(data) > _LARGE_BYTES else call())
    except _EXPECTED as exc:
        text = "; ".join((str(exc), *getattr(exc, "__notes__", ())))
        if len(text) > _ERROR_CHARACTERS:  # it may repeat input of any size
            text = f"{text[:_ERROR_CHARACTERS]}…"
        if method.readable is not None:
            text = await method.readable(text, structlog.contextvars.get_contextvars().get("endpoint_id"))
        return {method.error_key: "; ".join(filter(None, (text, next_step(text), method.consequence())))}
    except Exception:  # a bug must neither reach Docker as a traceback nor go unseen
        log.exception("rpc.bug")
        return {
            method.error_key: f"{method.name}: internal error in cni-bridge; its log has the details (event rpc.bug)"
        }


async def _read(method: Method, request: web.Request) -> bytes:
    try:
        if request.content.is_eof():  # it has arrived with the headers, as dockerd sends it
            return await request.read()
        async with asyncio.timeout(_READ_LIMIT_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as exc:
        raise BadRequest(
            f"{method.name}: the request is larger than {MAX_BODY_BYTES} bytes; nothing has been done"
        ) from exc
    except (web.RequestPayloadError, ConnectionError, TimeoutError) as exc:
        raise BadRequest(
            f"{method.name}: the connection was closed in the middle of the request; nothing has been done"
        ) from exc


async def _parse_body(method: Method, validate: Validator, data: bytes, calls: CallsUnderWay) -> JsonObject:
    """Return the body of a request; a large one, and one that is invalid, is validated in a thread."""
    if not data:
        raise BadRequest(
            f"{method.name}: the request has no body, as when Docker repeats a call whose connection broke; "
            "nothing has been done this time, run the docker command again"
        )
    try:
        if len(data) <= _LARGE_BYTES:
            document = parse_json(data)
            if validate.accepts(document):
                return as_object(document, method.name)
        with calls.counted(method.name, None):  # a stop of the daemon waits for it
            return await asyncio.to_thread(lambda: validate(parse_json(data)))
    except JsonError as exc:
        raise BadRequest(f"{method.name}: the request is invalid: {exc}") from exc


async def _unknown(request: web.Request) -> web.Response:
    return _respond({"Err": f"cni-bridge has no {request.method} {request.path}"}, status=404)


def _respond(reply: JsonObject | bytes, status: int = 200) -> web.Response:
    body = reply if isinstance(reply, bytes) else render_json(reply)
    response = web.Response(body=body, status=status, content_type="application/json")
    response.force_close()
    return response


@asynccontextmanager
async def answering(
    sock: socket.socket,
    methods: Iterable[Method],
    *,
    calls: CallsUnderWay,
    teardowns: TeardownQueue,
    journal: Journal,
    drain_timeout_s: float,
    on_hidden: Callable[[], None],
) -> AsyncIterator[None]:
    """Answer calls on a listening socket; at the end accept no new ones and complete running calls and teardowns.

    Calls and teardowns that take longer than `drain_timeout_s` are logged and cancelled; the next start completes them.
    `on_hidden` is called as by `make_app`.
    """
    async with running(make_app(methods, calls, journal, on_hidden=on_hidden), cancels=False) as server:
        async with accepting(sock, server):
            yield
        with suppress(TimeoutError):
            now = asyncio.get_running_loop().time
            arrived = now() + _ARRIVAL_S
            async with asyncio.timeout(drain_timeout_s):
                # Each answer closes its connection: one that is open has a call under way, or no request yet.
                while calls.all or teardowns.requested_ids or (server.connections and now() < arrived):
                    await teardowns.wait_tried(teardowns.requested_ids)
                    await asyncio.sleep(_LOOK_S)
        if calls.all or teardowns.requested_ids:
            log.warning("daemon.cut_off", calls=calls.all, teardowns=sorted(teardowns.requested_ids))
