# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""There is one record for each pending teardown, and each change wakes its waiters."""

import asyncio

from cni_bridge_state import EndpointId
from cnm_bridge.driver.teardown.pending import Pending, PendingTeardowns

FIRST, SECOND = EndpointId("1" * 64), EndpointId("2" * 64)


def test_states() -> None:
    """A teardown is leaving until its first attempt has ended, and again while another one runs."""
    pending = Pending(endpoint_id=FIRST)
    assert (pending.is_leaving, pending.is_tried) == (True, False)
    pending.attempts = 1
    assert (pending.is_leaving, pending.is_tried) == (False, True)
    pending.is_running = True
    assert (pending.is_leaving, pending.is_tried) == (True, True)


def test_one_record_for_each_endpoint() -> None:
    """It is the same until it is removed; a later teardown of the same endpoint begins anew."""
    teardowns = PendingTeardowns()
    first = teardowns.get_or_add(FIRST)
    assert teardowns.get_or_add(FIRST) is first
    assert teardowns.find([SECOND, FIRST]) == (first,)
    teardowns.remove(first)
    assert first.is_done
    assert not teardowns.all
    assert teardowns.get_or_add(FIRST) is not first


async def test_each_is_waited_for_once() -> None:
    """One that is tried again meanwhile does not prolong the wait."""
    teardowns = PendingTeardowns()
    first, second = map(teardowns.get_or_add, (FIRST, SECOND))
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        wait = tasks.create_task(teardowns.wait_until_each((first, second), lambda pending: not pending.is_leaving))
        second.attempts = 1
        await asyncio.sleep(0)
        teardowns.announce()
        await asyncio.sleep(0)
        second.is_running = True
        assert not wait.done()
        teardowns.remove(first)
        teardowns.announce()
