# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Waiting for libnetwork: until it has taken a link out of the host namespace, and is done with it in the sandbox."""

import asyncio
import threading
from collections.abc import Callable
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from cnm_bridge.kernel import Kernel, Placement
from tests.kernel.namespace import Namespace
from tests.kernel.pair import ALTNAME, HOST_NAME, place, prepare

pytestmark = pytest.mark.usefixtures("nothing_left_of_the_pair")


async def test_a_link_departs(kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace) -> None:
    """The one that waits is told when the link has left, at once when it is not there; others do not matter."""
    await prepare(kernel, host, staging)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.wait_departed(HOST_NAME))
        other = group.create_task(kernel.wait_departed("outside"))
        await asyncio.sleep(0)
        host.ip("link add some type veth peer name thing", "link delete some")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        place(host, sandbox)
        await waiting
        assert not other.done()
        other.cancel()
    await asyncio.wait_for(kernel.wait_departed(HOST_NAME), 10)


async def test_two_wait_for_one_link(kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace) -> None:
    """One that waits no more does not take the other's news away."""
    await prepare(kernel, host, staging)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        first, second = (group.create_task(kernel.wait_departed(HOST_NAME)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        place(host, sandbox)
        await second


async def test_more_news_than_the_kernel_keeps(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """What was lost among others is looked for."""
    await prepare(kernel, host, staging)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.wait_departed(HOST_NAME))
        still = group.create_task(kernel.wait_departed("outside"))
        for _ in range(100):
            await asyncio.sleep(0.001)  # until both have looked, and wait
        host.run("sh -c 'for i in $(seq 60); do ip link add some type veth peer name thing; ip link delete some; done'")
        place(host, sandbox)
        await waiting
        assert not still.done()
        still.cancel()


PLACED = Placement(
    addresses=(ip_interface("10.1.0.2/24"), ip_interface("fd00::2/64")),
    destinations=(ip_network("10.4.0.0/16"), ip_network("0.0.0.0/0")),
)


async def test_placement(kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace) -> None:
    """It is over with the last route, not before."""
    await prepare(kernel, host, staging)
    steps: list[Callable[[], None]] = [
        lambda: place(host, sandbox),
        lambda: sandbox.ip("route add 10.4.0.0/16 via 10.1.0.7"),
        lambda: sandbox.ip("route add default via 10.1.0.1 table 100"),
    ]
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.wait_placed(sandbox.path, ALTNAME, PLACED, 20.0))
        for step in steps:
            await asyncio.to_thread(step)
            assert not await kernel.wait_placed(sandbox.path, ALTNAME, PLACED, 0.0)  # who looks now finds it unfinished
            assert not waiting.done()
        sandbox.ip("route add default via 10.1.0.1")
        assert await waiting
    assert await kernel.wait_placed(sandbox.path, ALTNAME, PLACED, 0.0)


async def test_a_placement_that_does_not_come(kernel: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """The time is limited, and there is nothing to wait for in a sandbox that is gone."""
    assert not await kernel.wait_placed(sandbox.path, ALTNAME, PLACED, 0.01)
    assert not await kernel.wait_placed(tmp_path / "nowhere", ALTNAME, PLACED, 60.0)


async def test_a_cancelled_wait_is_over(kernel: Kernel, sandbox: Namespace) -> None:
    """Its thread does not wait for the time to be up."""
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.wait_placed(sandbox.path, ALTNAME, PLACED, 600.0))
        while threading.active_count() == 1:  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0.001)
        waiting.cancel()
    assert threading.active_count() == 1
