# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports that Docker requested while an endpoint had no record are published once, when it is rebuilt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from cni_bridge_state import EndpointId, NetworkId
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.wire import ProgramExternalConnectivity
from cnm_bridge.driver.endpoints.missed_ports import MissedPorts

ONE, OTHER = EndpointId("1" * 64), EndpointId("2" * 64)


def ask(endpoint_id: EndpointId) -> ProgramExternalConnectivity:
    """Return a request for an endpoint."""
    return ProgramExternalConnectivity(network_id=NetworkId("a" * 64), endpoint_id=endpoint_id, ports=())


@asynccontextmanager
async def publishing(refused: EndpointId | None = None) -> AsyncIterator[tuple[MissedPorts, list[EndpointId]]]:
    """Run, and yield the object with the endpoints whose ports were published; those of one are refused."""
    published: list[EndpointId] = []

    async def publish(request: ProgramExternalConnectivity) -> None:
        if request.endpoint_id == refused:
            raise Refused("the port is taken")
        published.append(request.endpoint_id)

    missed = MissedPorts(publish)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(missed.run())
        yield missed, published
        task.cancel()


async def turns() -> None:
    """Let other tasks run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_is_executed_when_the_record_is_rebuilt() -> None:
    """Once, and only for an endpoint that has one."""
    async with publishing() as (missed, published):
        missed.keep(ask(ONE))
        missed.note_rebuilt(OTHER)
        await turns()
        assert published == []
        missed.note_rebuilt(ONE)
        missed.note_rebuilt(ONE)
        await turns()
    assert published == [ONE]


async def test_an_endpoint_that_leaves_publishes_nothing() -> None:
    """Also if its record has just been rebuilt."""
    async with publishing() as (missed, published):
        for endpoint_id in (ONE, OTHER):
            missed.keep(ask(endpoint_id))
        missed.note_rebuilt(ONE)
        missed.forget(ONE)
        missed.forget(OTHER)
        missed.note_rebuilt(OTHER)
        await turns()
    assert published == []


async def test_a_refusal_is_logged() -> None:
    """And the ports of other endpoints are published."""
    with capture_logs() as logs:
        async with publishing(refused=ONE) as (missed, published):
            for endpoint_id in (ONE, OTHER):
                missed.keep(ask(endpoint_id))
                missed.note_rebuilt(endpoint_id)
            await turns()
    assert published == [OTHER]
    assert [(one["event"], one["error"]) for one in logs] == [("endpoint.ports_not_published", "the port is taken")]


async def test_the_oldest_requests_are_dropped() -> None:
    """There may be at most a thousand: endpoints whose records are never rebuilt do not fill the memory."""
    async with publishing() as (missed, published):
        for number in range(1001):
            missed.keep(ask(EndpointId(f"{number:064x}")))
        for number in (0, 1, 1000):
            missed.note_rebuilt(EndpointId(f"{number:064x}"))
        await turns()
    assert published == [EndpointId(f"{number:064x}") for number in (1, 1000)]
