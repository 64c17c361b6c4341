# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A slow engine delays calls for a short time only; requests in the background have a longer limit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from cni_bridge_spec import JsonObject
from cni_bridge_state import NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.assembly import Daemon, assemble
from cnm_bridge.core.errors import Refused
from tests.answering_engine import answering
from tests.driver_calls import call
from tests.records import settings_in

NETWORK: Final = NetworkId("a1" * 32)
ENGINE_TAKES_S: Final = 1.0
CALLS_WAIT_S: Final = 0.1


async def slowly(_: web.Request) -> web.Response:
    """Show the network after a while."""
    await asyncio.sleep(ENGINE_TAKES_S)
    found = {"Id": NETWORK, "Name": "blue", "Driver": "cni-bridge", "Scope": "local", "Containers": {}}
    return web.json_response(found)


@asynccontextmanager
async def assembled(directory: Path) -> AsyncIterator[Daemon]:
    """The daemon's objects, with a slow engine, and a configuration for a network."""
    async with answering(directory / "engine", {f"networks/{NETWORK}": slowly}):
        settings = settings_in(
            directory,
            cni_conf_dirs=(directory,),
            cni_bin_dirs=(directory / "bin",),
            docker_host=f"unix://{directory}/engine",
            engine_timeout_s=CALLS_WAIT_S,
            binding_timeout_s=30,
        )
        (directory / "blue.conf").write_text('{"cniVersion": "1.0.0", "name": "blue", "type": "bridge"}')
        store = Store.open(settings.state_dir)
        daemon = assemble(settings, store)
        try:
            yield daemon
        finally:
            await daemon.resources.close()
            store.close()


async def test_a_call_waits_for_the_engine_for_a_short_time_only(tmp_path: Path) -> None:
    """A call for a network without a record asks the engine, and is refused after the short limit."""
    body: JsonObject = {"NetworkID": NETWORK, "EndpointID": "e2" * 32, "Interface": {}}
    async with assembled(tmp_path) as daemon:
        with capture_logs() as logged, pytest.raises(Refused, match="cni-bridge has no record of network"):
            await call(daemon, "CreateEndpoint", body)
    (line,) = (line for line in logged if line["event"] == "network.not_imported")
    assert line["error"].endswith(f"did not answer within {CALLS_WAIT_S:g} s")


async def test_background_requests_wait_longer_than_calls(tmp_path: Path) -> None:
    """The name of a network is received from an engine that takes longer than the limit of calls."""
    async with assembled(tmp_path) as daemon, asyncio.TaskGroup() as tasks:
        learning = tasks.create_task(daemon.networks.lists.name_resolver.run())
        with capture_logs() as logged:
            await call(daemon, "CreateNetwork", {"NetworkID": NETWORK, "Options": {}})
            assert await daemon.networks.lists.name_resolver.wait(NETWORK) == "blue"
        assert [line["event"] for line in logged] == ["network.created", "network.named"]
        learning.cancel()
