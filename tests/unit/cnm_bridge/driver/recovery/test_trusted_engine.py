# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""When a round begins because of the engine: it answers, or makes its first network."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonObject
from cni_bridge_state import NetworkId
from cni_bridge_state.store import Store
from cnm_bridge.driver.networks.engine_import import EngineImport
from cnm_bridge.driver.recovery.trusted_engine import TrustedEngine
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.scheduling import KeyedLocks
from tests.answering_engine import answering

LIMIT_S = 10.0
ENGINE = "engine"


@asynccontextmanager
async def serving(path: Path, is_expected: asyncio.Event) -> AsyncIterator[Engine]:
    """Serve an engine that makes a network, and then connects a container, when they are expected."""
    ended = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await is_expected.wait()
        for action in ("create", "connect"):
            actor: JsonObject = {"ID": "n1", "Attributes": {"container": "c1"}}
            event: JsonObject = {"Type": "network", "Action": action, "Actor": actor, "time": 1}
            await stream.write(json.dumps(event).encode() + b"\n")
        await ended.wait()
        return stream

    info: JsonObject = {"ID": ENGINE, "ServerVersion": "28.5.2"}
    async with answering(path, {"info": info, "events": events}, timeout_s=LIMIT_S) as engine:
        try:
            yield engine
        finally:
            ended.set()


@pytest.mark.parametrize(("identity", "rounds"), [(None, 2), (ENGINE, 1)], ids=["unknown", "trusted"])
async def test_a_network_is_made(store: Store, tmp_path: Path, identity: str | None, rounds: int) -> None:
    """While no engine is trusted it begins a round: if it is lost, as on a swarm's worker, nothing else does."""
    if identity is not None:
        await store.put_engine_identity(identity)
    answered, connected, begun = asyncio.Event(), asyncio.Event(), list[str]()

    def begin() -> None:
        begun.append("round")
        answered.set()

    async with serving(tmp_path / "s", answered) as engine:
        engine_import = EngineImport(store, engine, KeyedLocks[NetworkId]())
        trusted = TrustedEngine(
            store=store, engine=engine, engine_import=engine_import, version=KnownVersion(store), driver="cni-bridge"
        )
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(trusted.follow(begin, lambda _: connected.set()))
            await connected.wait()  # it comes after the network
            following.cancel()
    assert len(begun) == rounds
