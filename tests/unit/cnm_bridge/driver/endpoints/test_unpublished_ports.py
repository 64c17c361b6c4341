# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container whose ports cannot be published starts only if it may have another network that publishes them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import EndpointId, NetworkId, Phase, RequestedInterface
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import CannotPublish
from cnm_bridge.core.wire import CreateEndpoint, ProgramExternalConnectivity
from cnm_bridge.driver.endpoints.after_join import Unpublished
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel
from tests.answering_engine import answering
from tests.records import endpoint, list_of

ENDPOINT = EndpointId("77" * 32)
CONTAINER = "b1" * 32
KERNEL = Kernel(reply_limit_s=5.0)
REQUEST = ProgramExternalConnectivity(network_id=NetworkId("6f" * 32), endpoint_id=ENDPOINT, ports=())
ERROR = CannotPublish("ports cannot be published")
BLUE: JsonValue = {
    "Id": REQUEST.network_id,
    "Name": "blue",
    "Scope": "local",
    "Containers": {f"ep-{ENDPOINT}": {"Name": "web", "EndpointID": ENDPOINT}},
}


RECORD = replace(endpoint(ENDPOINT, Phase.PENDING), network_id=REQUEST.network_id)


@pytest.fixture(autouse=True)
async def fill_store(store: Store) -> None:
    """Store the endpoint."""
    await store.put_endpoint(RECORD)


@asynccontextmanager
async def engine(
    store: Store,
    path: Path,
    networks: Sequence[str],
    on_question: Callable[[], Awaitable[None]] | None = None,
    *,
    shown: str = "web",
) -> AsyncIterator[Unpublished]:
    """Run an engine with one container, named `web`, on the given networks."""

    async def blue(_: web.Request) -> web.Response:
        if on_question is not None:
            await on_question()
        return web.json_response(BLUE)

    async def containers(request: web.Request) -> web.Response:
        assert request.query["filters"] in {'{"name": ["^/web$"]}', json.dumps({"id": [CONTAINER]})}
        container = {"Names": [f"/{shown}"], "NetworkSettings": {"Networks": {name: {} for name in networks}}}
        others = {"Image": "busybox", "Labels": {}, "State": "created", "HostConfig": {}}
        return web.json_response([{"Id": CONTAINER, **others, **container}])

    answers = {f"networks/{REQUEST.network_id}": blue, "containers/json": containers}
    async with answering(path, answers, timeout_s=3600) as found:
        yield Unpublished(store, found, KERNEL)


async def test_an_unknown_container_starts(store: Store, tmp_path: Path) -> None:
    """If the engine does not list the container, its networks are unknown."""
    async with engine(store, tmp_path / "s", ["blue"], shown="web2") as unpublished:
        await unpublished.accept(REQUEST, ERROR)


async def test_a_container_starts_if_the_engine_cannot_be_reached(store: Store, tmp_path: Path) -> None:
    """Without an answer its networks are unknown."""
    await Unpublished(store, Engine(f"unix://{tmp_path}/none", 5), KERNEL).accept(REQUEST, ERROR)


async def test_a_container_starts_if_the_engine_does_not_answer(store: Store, tmp_path: Path) -> None:
    """While dockerd starts, its socket accepts connections without answering; its containers must not wait."""

    async def never() -> None:
        await asyncio.Event().wait()

    async with engine(store, tmp_path / "s", ["blue"], never) as unpublished:
        await unpublished.accept(REQUEST, ERROR)


async def test_no_reason_is_recorded_for_a_removed_endpoint(store: Store, tmp_path: Path) -> None:
    """Such a reason would never be removed."""

    async def remove() -> None:
        if store.find_endpoint(ENDPOINT) is not None:
            await store.put_endpoint(replace(RECORD, phase=Phase.DELETING))
            await store.remove_endpoint(ENDPOINT)

    async with engine(store, tmp_path / "s", ["blue", "red"], remove) as unpublished:
        await unpublished.accept(REQUEST, ERROR)
        assert unpublished.reasons == {}


CREATE = CreateEndpoint(
    network_id=REQUEST.network_id, endpoint_id=ENDPOINT, requested=RequestedInterface(), options={}, has_ports=True
)
BRIDGE: JsonObject = {"type": "bridge"}
PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}


def starting(tmp_path: Path) -> Kernel:
    """Return a kernel whose latest process is that of the container."""
    processes = tmp_path / "proc"
    (processes / "sys/kernel").mkdir(parents=True)
    (processes / "sys/kernel/ns_last_pid").write_text("9\n")
    (processes / "7").mkdir()
    (processes / "7/cgroup").write_text(f"0::/system.slice/docker-{CONTAINER}.scope\n")
    return Kernel(reply_limit_s=5.0, processes=processes)


async def test_ports_of_the_only_network_are_refused_at_once(store: Store, tmp_path: Path) -> None:
    """CreateEndpoint is refused, before a plugin runs; the error says what the list lacks."""
    async with engine(store, tmp_path / "s", ["blue"]) as found:
        unpublished = replace(found, kernel=starting(tmp_path))
        with pytest.raises(CannotPublish, match=r'configuration blue has no plugin.*add \{ "type": "portmap"'):
            await unpublished.refuse_early(CREATE, list_of(BRIDGE))
        await unpublished.refuse_early(CREATE, list_of(BRIDGE, PORTMAP))


async def test_ports_of_one_of_several_networks_are_not_refused_at_once(store: Store, tmp_path: Path) -> None:
    """Another network may publish them."""
    async with engine(store, tmp_path / "s", ["blue", "red"]) as found:
        await replace(found, kernel=starting(tmp_path)).refuse_early(CREATE, list_of(BRIDGE))


async def test_ports_of_an_unknown_container_are_not_refused_at_once(store: Store, tmp_path: Path) -> None:
    """A container without a process is not the one that is being started; without an answer, none is known."""
    (tmp_path / "other").mkdir()
    no_engine = Unpublished(store, Engine(f"unix://{tmp_path}/none", 5), starting(tmp_path / "other"))
    await no_engine.refuse_early(CREATE, list_of(BRIDGE))
    async with engine(store, tmp_path / "s", ["blue"]) as found:
        kernel = starting(tmp_path)
        (tmp_path / "proc/7/cgroup").write_text("0::/init.scope\n")
        await replace(found, kernel=kernel).refuse_early(CREATE, list_of(BRIDGE))
