# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""HTTP at the admin socket: requests with parameters in path and query, answered by a document.

* `GET /version` is answered by every daemon, now and later: `{"version": "0.1.0", "api": [1]}`.
* Everything else begins with the version of the interface, `/v1/`. Within a version keys are added, never removed.
* An error has a status other than 200 and the body of `spec/admin/error.json`, with the daemon's version. So a program
  that asks an older or a newer daemon can say so.
"""

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

import structlog
from aiohttp import web

from cni_bridge_spec import JsonObject, render_json
from cni_bridge_state import StateError
from cni_invoker import CniError
from cnm_bridge import __version__
from cnm_bridge.core.errors import BridgeError, KernelError
from cnm_bridge.server.listening import accepting, running

log = structlog.get_logger()

JSON: Final = "application/json"

_API_VERSIONS: Final = [1]

_EXPECTED: Final = (BridgeError, CniError, KernelError, StateError)


class ErrorKind(StrEnum):
    """What was wrong; programs decide by it, people read the text."""

    UNKNOWN_REQUEST = "unknownRequest"
    """This daemon has no such request: it is older or newer than the program that asks."""
    BAD_REQUEST = "badRequest"
    """A parameter is missing or malformed."""
    NOT_FOUND = "notFound"
    """Nothing has this name."""
    REFUSED = "refused"
    """It is not possible now, for example because it is in use."""
    INTERNAL = "internal"
    """A bug; the daemon's log has the details."""


class AdminError(BridgeError):
    """A request cannot be answered; it has changed nothing."""

    def __init__(self, kind: ErrorKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


_STATUS: Final = {
    ErrorKind.UNKNOWN_REQUEST: 404,
    ErrorKind.BAD_REQUEST: 400,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.REFUSED: 409,
    ErrorKind.INTERNAL: 500,
}

Answer = JsonObject | bytes | AsyncGenerator[bytes, None]
"""A document, a rendered one, or parts of one that are sent as they are made, until the client disconnects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the interface.

    Attributes:
        path: E.g. `/v1/endpoints/{name}`; a part in braces is a parameter.
        answer: Takes the parameters of path and query, and returns the answer.
    """

    path: str
    answer: Callable[[Mapping[str, str]], Awaitable[Answer]]
    verb: Literal["GET", "POST"] = "GET"
    content_type: str = JSON


@asynccontextmanager
async def answering_admin(sock: socket.socket, requests: Iterable[Request]) -> AsyncIterator[None]:
    """Answer requests on a listening socket during the block."""
    async with running(admin_app(requests), cancels=True) as server, accepting(sock, server):
        yield


def admin_app(requests: Iterable[Request]) -> web.Application:
    """Return the application that answers these requests, the question for the version, and others with an error."""
    app = web.Application()
    for request in (Request(path="/version", answer=_version), *requests):
        app.router.add_route(request.verb, request.path, _handler(request))
    app.router.add_route("*", "/{path:.*}", _unknown)
    app.on_response_prepare.append(_close)
    return app


async def _close(_: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after the answer: one that is kept open takes a descriptor."""
    response.force_close()
    response.headers["Connection"] = "close"  # the headers are complete before this is called


async def _version(_: Mapping[str, str]) -> JsonObject:
    return {"version": __version__, "api": _API_VERSIONS}


def _handler(request: Request) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(received: web.Request) -> web.StreamResponse:
        with structlog.contextvars.bound_contextvars(admin=request.path):
            try:
                answer = await request.answer({**received.query, **received.match_info})
            except AdminError as exc:
                return _fail(exc.kind, str(exc))
            except _EXPECTED as exc:
                return _fail(ErrorKind.REFUSED, str(exc))
            except Exception:  # a bug is logged, and the client gets an answer
                log.exception("rpc.bug")
                text = f"internal error in cni-bridge at {request.path}; its log has the details (event rpc.bug)"
                return _fail(ErrorKind.INTERNAL, text)
            if isinstance(answer, AsyncGenerator):
                return await _send_parts(received, answer, request.content_type)
            body = answer if isinstance(answer, bytes) else render_json(answer)
            return web.Response(body=body, content_type=request.content_type)

    return handle


async def _send_parts(
    request: web.Request, parts: AsyncGenerator[bytes, None], content_type: str
) -> web.StreamResponse:
    """Send parts of an answer. A client that has gone, or a stop of the daemon, cancels this."""
    response = web.StreamResponse()
    response.content_type = content_type
    await response.prepare(request)
    async with aclosing(parts):
        async for part in parts:
            await response.write(part)
    return response


async def _unknown(request: web.Request) -> web.Response:
    return _fail(ErrorKind.UNKNOWN_REQUEST, f"cni-bridge {__version__} has no {request.method} {request.path}")


def _fail(kind: ErrorKind, text: str) -> web.Response:
    body = render_json({"error": text, "kind": kind.value, "version": __version__})
    return web.Response(body=body, status=_STATUS[kind], content_type=JSON)
