# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What belongs to one call has one ID."""

import asyncio

import structlog

from cnm_bridge.system.log import find_trace, traced


async def test_all_executions_of_a_call_have_one_trace() -> None:
    """Each is a span of its own, also in tasks that the call starts."""

    async def trace() -> str:
        found = find_trace()
        assert found is not None
        return found.traceparent

    with traced():
        async with asyncio.TaskGroup() as tasks:
            started = tasks.create_task(trace())
        parents = [await trace(), await started]
        trace_id = structlog.contextvars.get_contextvars()["trace_id"]
    assert {parent.split("-")[1] for parent in parents} == {trace_id}
    assert len({parent.split("-")[2] for parent in parents}) == 2
    with traced():
        assert (await trace()).split("-")[1] != trace_id


def test_outside_of_a_call_there_is_none() -> None:
    """As in background work of the daemon that no call has requested."""
    assert find_trace() is None
