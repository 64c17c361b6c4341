# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The differences between Docker's networks and endpoints and our records, and when they are looked for."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId, NetworkId, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts.network import EngineEndpoint, EngineNetwork
from cnm_bridge.driver.networks.engine_import import EngineImport
from cnm_bridge.driver.recovery.trusted_engine import (
    EngineView,
    TrustedEngine,
    dead_endpoints,
    dead_networks,
    find_foreign,
    knows_any,
    unchanged_since,
    unknown_endpoints,
)
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.scheduling import KeyedLocks
from tests.answering_engine import answering
from tests.records import endpoint, network_record

NETWORK = network_record("n1")
ENDPOINT = replace(endpoint("e1"), network_id=NETWORK.id, sandbox_key="/var/run/docker/netns/1")


def engine_view(*endpoints: str) -> EngineView:
    """Return an engine that has the network with these endpoints."""
    known = {
        name: EngineEndpoint(id=name, name="web", address=None, address_ipv6=None, mac=None, container_id="b1" * 32)
        for name in endpoints
    }
    network = EngineNetwork(
        id="n1", name="blue", driver="cni-bridge", internal=False, options={}, pools=(), endpoints=known
    )
    return EngineView(identity="engine", networks={NETWORK.id: network})


NOTHING = EngineView(identity="engine", networks={NETWORK.id: None})


@pytest.mark.parametrize("phase", [Phase.READY, Phase.JOINED, Phase.PENDING, Phase.DELETING])
@pytest.mark.parametrize("seen", [engine_view(), engine_view("e2"), NOTHING], ids=["empty", "other", "no network"])
def test_an_endpoint_unknown_to_docker_is_forgotten(phase: Phase, seen: EngineView) -> None:
    """Docker may have lost it alone, or with its network; one that is being made or deleted it need not know."""
    record = replace(ENDPOINT, phase=phase)
    assert dead_endpoints(seen, [record]) == ((record,) if phase in {Phase.READY, Phase.JOINED} else ())
    assert dead_endpoints(engine_view("e1"), [record]) == ()


def test_a_network_created_since_the_request_is_not_compared() -> None:
    """Neither it nor its endpoints are forgotten."""
    seen = EngineView(identity="engine", networks={})
    assert dead_endpoints(seen, [ENDPOINT]) == ()
    assert dead_networks(seen, [NETWORK], []) == ()


def test_a_network_is_forgotten_after_its_endpoints() -> None:
    """Its record is needed as long as one of its endpoints has a record."""
    assert dead_networks(NOTHING, [NETWORK], [ENDPOINT]) == ()
    assert dead_networks(NOTHING, [NETWORK], []) == (NETWORK,)
    assert dead_networks(engine_view(), [NETWORK], []) == ()


SECOND = replace(NETWORK, id=NetworkId("n2"))
FIRST_CALLER, OTHER_CALLER = ProcessRecord(pid=1, started=1), ProcessRecord(pid=2, started=1)


@pytest.mark.parametrize(
    ("listed", "second", "is_foreign"),
    [
        ({}, {}, False),
        ({}, {"engine": "another"}, True),
        ({"engine": "another"}, {"engine": "another"}, False),
        ({}, {"engine": "engine"}, False),
        ({"caller": FIRST_CALLER}, {"caller": OTHER_CALLER}, True),
        ({"caller": FIRST_CALLER}, {"caller": FIRST_CALLER}, False),
        ({"caller": FIRST_CALLER}, {"caller": OTHER_CALLER, "engine": "engine"}, False),
    ],
    ids=[
        "nothing known",
        "listed by another",
        "new ID",
        "listed before",
        "another caller",
        "same caller",
        "new caller",
    ],
)
def test_a_network_of_another_engine(
    listed: dict[str, str | ProcessRecord], second: dict[str, str | ProcessRecord], *, is_foreign: bool
) -> None:
    """It was listed by another one, or requested by a process that has requested nothing of this one's."""
    networks = [replace(NETWORK, **listed), replace(SECOND, **second)]  # type: ignore[arg-type]
    assert find_foreign(engine_view(), networks, []) == ({SECOND.id} if is_foreign else set())


def test_a_process_that_has_requested_an_endpoint_is_known() -> None:
    """Its networks are those of the engine that lists the endpoint's network, as after a restart of dockerd."""
    networks = [replace(NETWORK, caller=FIRST_CALLER), replace(SECOND, caller=OTHER_CALLER)]
    assert find_foreign(engine_view(), networks, [replace(ENDPOINT, caller=OTHER_CALLER)]) == set()
    assert find_foreign(engine_view(), networks, [replace(ENDPOINT, caller=FIRST_CALLER)]) == {SECOND.id}


def test_unknown_endpoints_are_those_without_a_record() -> None:
    """They are returned with what Docker knows about them. One in no container is not: it cannot be rebuilt."""
    seen = engine_view("e1", "e2")
    network = seen.networks[NETWORK.id]
    assert network is not None
    assert unknown_endpoints(seen, [ENDPOINT]) == {EndpointId("e2"): (network, network.endpoints["e2"])}
    outside = replace(network, endpoints={"e3": replace(network.endpoints["e2"], id="e3", container_id=None)})
    assert unknown_endpoints(replace(seen, networks={NETWORK.id: outside}), [ENDPOINT]) == {}


def test_an_engine_that_knows_one_network_is_ours() -> None:
    """An engine that knows no recorded network may be any engine."""
    other = replace(NETWORK, id=NetworkId("n2"))
    assert knows_any(engine_view(), [other, NETWORK])
    assert not knows_any(engine_view(), [other])
    assert not knows_any(NOTHING, [NETWORK])


def test_only_unchanged_findings_count() -> None:
    """A record must be found by both comparisons, and must not have been stored again in between."""
    other, stored_again = replace(ENDPOINT, id=EndpointId("e2")), replace(ENDPOINT)
    assert unchanged_since([ENDPOINT, other], [ENDPOINT]) == (ENDPOINT,)
    assert unchanged_since([ENDPOINT], [stored_again]) == ()
    assert unchanged_since([], [ENDPOINT]) == ()


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
