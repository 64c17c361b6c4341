# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A slow engine holds up no call for long, and what is asked in the background has the time that it needs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.errors import Refused
from cnm_bridge.settings import Settings
from spec import JsonObject
from state import NetworkId, Store

NETWORK: Final = NetworkId("a1" * 32)
ENGINE_TAKES_S: Final = 1.0
CALLS_WAIT_S: Final = 0.1


@asynccontextmanager
async def slow_engine(path: Path) -> AsyncIterator[str]:
    """Serve an engine that takes its time; give its address."""

    async def version(request: web.Request) -> web.Response:  # noqa: ARG001
        return web.json_response({"ApiVersion": "1.41"})

    async def network(request: web.Request) -> web.Response:
        await asyncio.sleep(ENGINE_TAKES_S)
        return web.json_response({"Id": request.match_info["id"], "Name": "blue", "Driver": "cni-bridge"})

    app = web.Application()
    app.router.add_get("/version", version)
    app.router.add_get("/{api}/networks/{id}", network)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    try:
        yield f"unix://{path}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def assembled(directory: Path) -> AsyncIterator[Daemon]:
    """Give the daemon's objects, with a slow engine, and a configuration that a network can be bound to."""
    async with slow_engine(directory / "engine") as host:
        settings = Settings(
            state_dir=directory / "state",
            run_dir=directory / "run",
            cni_conf_dirs=(directory,),
            cni_bin_dirs=(directory / "bin",),
            docker_host=host,
            engine_timeout_s=CALLS_WAIT_S,
            binding_timeout_s=30,
        )
        (directory / "blue.conf").write_text('{"cniVersion": "1.0.0", "name": "blue", "type": "bridge"}')
        store = Store.open(settings.state_dir)
        try:
            yield assemble(settings, store)
        finally:
            store.close()


async def call(daemon: Daemon, method: str, body: JsonObject) -> JsonObject:
    """Have a call of Docker's answered."""
    (answer,) = (found.answer for found in daemon.api.methods if found.name == f"NetworkDriver.{method}")
    assert callable(answer)
    return await answer(body, 0)


async def test_a_call_does_not_wait(tmp_path: Path) -> None:
    """A network without a record is asked for, without success if the engine is slow; the call is refused soon."""
    body: JsonObject = {"NetworkID": NETWORK, "EndpointID": "e2" * 32, "Interface": {}}
    async with assembled(tmp_path) as daemon:
        with capture_logs() as logged, pytest.raises(Refused, match="cni-bridge knows no network"):
            await call(daemon, "CreateEndpoint", body)
    (line,) = (line for line in logged if line["event"] == "network.not_imported")
    assert line["error"].endswith(f"did not answer within {CALLS_WAIT_S:g} s")


async def test_the_background_waits(tmp_path: Path) -> None:
    """The name of a network is learned from an engine that takes longer than a call would wait."""
    async with assembled(tmp_path) as daemon, asyncio.TaskGroup() as tasks:
        learning = tasks.create_task(daemon.networks.name_resolver.run())
        with capture_logs() as logged:
            await call(daemon, "CreateNetwork", {"NetworkID": NETWORK, "Options": {}})
            assert await daemon.networks.name_resolver.wait(NETWORK) == "blue"
        assert [line["event"] for line in logged] == ["network.created", "network.named"]
        learning.cancel()
