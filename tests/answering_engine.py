# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An engine that gives prepared answers on a real socket."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from cni_bridge_spec import JsonValue, render_json
from cnm_bridge.system.engine import Engine

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(
    path: Path,
    answers: Mapping[str, JsonValue | Handler],
    *,
    status: int = 200,
    timeout_s: float = 5,
    stays_open: bool = False,
) -> AsyncIterator[Engine]:
    """Serve answers by path without the version of the API, with a status; break the connection for other paths."""
    known: dict[str, JsonValue | Handler] = {"version": {"ApiVersion": "1.41", "Version": "20.10.24"}, **answers}

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = re.sub(r"^/(v1\.\d+/)?", "", request.path)
        found = known.get(asked)
        if callable(found):
            return await found(request)
        if asked not in known:
            assert request.transport is not None
            request.transport.abort()
        headers = {"Content-Type": "application/json"}  # as dockerd does
        return web.Response(body=render_json(found), headers=headers, status=200 if asked == "version" else status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    engine = Engine(f"unix://{path}", timeout_s, stays_open=stays_open)
    try:
        yield engine
    finally:
        await engine.close()
        await runner.cleanup()
