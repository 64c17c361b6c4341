# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Errors name networks and containers, not IDs of 64 digits."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import EndpointId, NetworkId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.driver.networks.readable_ids import ReadableIds
from cnm_bridge.system.engine import Engine
from tests.answering_engine import Handler, answering
from tests.records import endpoint, network_record

WEB, UNKNOWN = EndpointId("77" * 32), EndpointId("99" * 32)
BLUE, OTHER = NetworkId("6f" * 32), NetworkId("71" * 32)


@pytest.fixture(autouse=True)
async def fill_store(store: Store) -> None:
    """Store a network that has a name, and the endpoint of a container."""
    await store.put_network(network_record(BLUE, configuration="blue"))
    await store.put_endpoint(replace(endpoint(WEB, Phase.PENDING), network_id=BLUE))


@pytest.fixture(name="engine")
async def make_engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine with the container `web` on the network."""
    containers: JsonObject = {"b1" * 32: {"Name": "web", "EndpointID": WEB}}
    blue: JsonObject = {"Id": BLUE, "Name": "blue", "Scope": "local", "Containers": containers}

    async def unknown(_: web.Request) -> web.Response:
        return web.json_response({"message": "not found"}, status=404)

    answers: dict[str, JsonValue | Handler] = {f"networks/{BLUE}": blue, f"networks/{OTHER}": unknown}
    async with answering(tmp_path / "docker", answers) as engine:
        yield engine


async def test_names_replace_ids(store: Store, engine: Engine) -> None:
    """An endpoint keeps its short ID, for the operator's commands; what has no name has a short ID."""
    text = f"published for endpoint {WEB} on network {BLUE}, and not for endpoint {UNKNOWN} on network {OTHER}"
    assert await ReadableIds(store, engine)(text) == (
        "published for container web (endpoint 777777777777) on network blue, and not for endpoint 999999999999 on "
        "network 717171717171"
    )


async def test_container_ids_of_plugins(store: Store, engine: Engine) -> None:
    """Those of our attachments are replaced, also if the record of the call's endpoint is gone; paths stay usable."""
    readable = ReadableIds(store, engine)
    assert await readable(f'no rule of "{WEB}" (network blue, container {WEB})') == (
        'no rule of "777777777777" (network blue, container web (endpoint 777777777777))'
    )
    text = f"no rule of {UNKNOWN}. (network blue, container {UNKNOWN})"
    assert await readable(text, UNKNOWN) == "no rule of 999999999999. (network blue, endpoint 999999999999)"
    assert await readable(text) == text
    path = f"open /run/cni-bridge/netns/{WEB}: no such file; /var/lib/cni/results/blue-{WEB}-eth0"
    assert await readable(path, WEB) == path


async def test_ids_are_shortened_without_an_engine(store: Store, tmp_path: Path) -> None:
    """The error itself is what matters; names of networks are stored."""
    readable = ReadableIds(store, Engine(f"unix://{tmp_path}/none", timeout_s=5))
    assert await readable(f"network {BLUE} has endpoint {WEB}") == "network blue has endpoint 777777777777"
    assert await readable("no plugin bridge") == "no plugin bridge"
