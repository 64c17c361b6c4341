# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports whose request was not completed are published once: at the start, or when the lost record is rebuilt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from structlog.testing import capture_logs

from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.wire import ProgramExternalConnectivity
from cnm_bridge.driver.endpoints.unpublished_ports import MissedPorts
from tests.records import NETWORK, endpoint, put
from tests.unit.cnm_bridge.core.planning.port_requests import request

ONE, OTHER = EndpointId("1" * 64), EndpointId("2" * 64)


def ask(endpoint_id: EndpointId) -> ProgramExternalConnectivity:
    """Return a request for an endpoint."""
    return ProgramExternalConnectivity(network_id=NETWORK, endpoint_id=endpoint_id, ports=())


@asynccontextmanager
async def publishing(
    directory: Path, *records: EndpointRecord, failing: EndpointId | None = None, how: Exception | None = None
) -> AsyncIterator[tuple[MissedPorts, list[ProgramExternalConnectivity]]]:
    """Run with some records, and yield the object with the requests that were executed.

    Those of one endpoint fail with an error, or hang without one.
    """
    published: list[ProgramExternalConnectivity] = []

    async def publish(request: ProgramExternalConnectivity) -> None:
        if request.endpoint_id == failing:
            if how is None:
                await asyncio.Event().wait()
            else:
                raise how
        published.append(request)

    store = Store.open(directory)
    for record in records:
        await put(store, record)
    missed = MissedPorts(store, publish)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(missed.run())
        yield missed, published
        task.cancel()
    store.close()


async def turns() -> None:
    """Let other tasks run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def rebuild_both(missed: MissedPorts) -> None:
    """Have the requests for both endpoints executed, as far as that is possible now."""
    for endpoint_id in (ONE, OTHER):
        missed.keep(ask(endpoint_id))
        missed.note_rebuilt(endpoint_id)
    await turns()


async def test_a_request_is_executed_when_the_record_is_rebuilt(tmp_path: Path) -> None:
    """Once, and only for an endpoint that has one."""
    async with publishing(tmp_path) as (missed, published):
        missed.keep(ask(ONE))
        missed.note_rebuilt(OTHER)
        await turns()
        assert published == []
        missed.note_rebuilt(ONE)
        missed.note_rebuilt(ONE)
        await turns()
    assert published == [ask(ONE)]


async def test_what_the_previous_run_had_not_completed(tmp_path: Path) -> None:
    """Only endpoints that are joined have their ports published."""
    joined = replace(endpoint(ONE), requested_ports=(request(80),))
    left = replace(endpoint(OTHER, Phase.READY), requested_ports=(request(81),))
    async with publishing(tmp_path, joined, left, endpoint("3" * 64)) as (_, published):
        await turns()
    assert published == [replace(ask(ONE), ports=(request(80),))]


async def test_an_endpoint_that_leaves_publishes_nothing(tmp_path: Path) -> None:
    """Also if its record has just been rebuilt."""
    async with publishing(tmp_path) as (missed, published):
        for endpoint_id in (ONE, OTHER):
            missed.keep(ask(endpoint_id))
        missed.note_rebuilt(ONE)
        missed.forget(ONE)
        missed.forget(OTHER)
        missed.note_rebuilt(OTHER)
        await turns()
    assert published == []


async def test_a_refusal_is_logged(tmp_path: Path) -> None:
    """And the ports of other endpoints are published."""
    with capture_logs() as logs:
        async with publishing(tmp_path, failing=ONE, how=Refused("the port is taken")) as (missed, published):
            await rebuild_both(missed)
    assert published == [ask(OTHER)]
    assert [(one["event"], one["error"]) for one in logs] == [("endpoint.ports_not_published", "the port is taken")]


async def test_a_plugin_that_hangs(tmp_path: Path) -> None:
    """The ports of other endpoints are published meanwhile."""
    async with publishing(tmp_path, failing=ONE) as (missed, published):
        await rebuild_both(missed)
        assert published == [ask(OTHER)]


async def test_a_bug(tmp_path: Path) -> None:
    """It is logged, and the ports of other endpoints are published."""
    with capture_logs() as logs:
        async with publishing(tmp_path, failing=ONE, how=RecursionError("a bug")) as (missed, published):
            await rebuild_both(missed)
    assert published == [ask(OTHER)]
    assert [one["event"] for one in logs] == ["ports.bug"]


async def test_the_oldest_requests_are_dropped(tmp_path: Path) -> None:
    """There may be at most a thousand: endpoints whose records are never rebuilt do not fill the memory."""
    async with publishing(tmp_path) as (missed, published):
        for number in range(1001):
            missed.keep(ask(EndpointId(f"{number:064x}")))
        for number in (0, 1, 1000):
            missed.note_rebuilt(EndpointId(f"{number:064x}"))
        await turns()
    assert published == [ask(EndpointId(f"{number:064x}")) for number in (1, 1000)]
