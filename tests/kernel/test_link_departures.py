# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Waiting until libnetwork has moved a link out of the host namespace and has configured it; announcing it then."""

import asyncio
from collections.abc import Callable
from functools import partial
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest

from cni_bridge_spec import get_str
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link.plan_sandbox import Placement
from cnm_bridge.system.kernel import Kernel
from conftest import count_threads
from tests.kernel.namespace import Namespace
from tests.kernel.pair import ALTNAME, HOST_NAME, place_link, prepare
from tests.lab import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left_of_the_pair")


async def test_wait_departed_returns_when_the_link_has_left(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Changes to other links do not end the wait; for a link that does not exist it returns at once."""
    await prepare(kernel, host, staging)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.wait_departed(HOST_NAME))
        other = group.create_task(kernel.wait_departed("outside"))
        await asyncio.sleep(0)
        host.ip("link add some type veth peer name thing", "link delete some")
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        place_link(host, sandbox)
        await waiting
        assert not other.done()
        other.cancel()
    await asyncio.wait_for(kernel.wait_departed(HOST_NAME), 10)


async def test_a_cancelled_wait_does_not_end_another(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Of two waits for the same link, the one that is not cancelled still sees the link leave."""
    await prepare(kernel, host, staging)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        first, second = (group.create_task(kernel.wait_departed(HOST_NAME)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        place_link(host, sandbox)
        await second


async def test_lost_netlink_messages_do_not_hide_a_departure(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """When the socket's buffer overflows, the links are listed again."""
    await prepare(kernel, host, staging)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.wait_departed(HOST_NAME))
        still = group.create_task(kernel.wait_departed("outside"))
        for _ in range(100):
            await asyncio.sleep(0.001)  # until both have looked, and wait
        host.run("sh -c 'for i in $(seq 60); do ip link add some type veth peer name thing; ip link delete some; done'")
        place_link(host, sandbox)
        await waiting
        assert not still.done()
        still.cancel()


PLACED = Placement(
    addresses=(ip_interface("10.1.0.2/24"), ip_interface("fd00::2/64")),
    destinations=(ip_network("10.4.0.0/16"), ip_network("0.0.0.0/0")),
)


async def test_wait_placed_returns_with_the_last_route(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """As long as an address or a route of the main table is missing, the link is not placed."""
    await prepare(kernel, host, staging)
    steps: list[Callable[[], None]] = [
        lambda: place_link(host, sandbox),
        lambda: sandbox.ip("route add 10.4.0.0/16 via 10.1.0.7"),
        lambda: sandbox.ip("route add default via 10.1.0.1 table 100"),
    ]
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.link_in_sandbox(sandbox.path, ALTNAME).wait_placed(PLACED, 20.0))
        for step in steps:
            await asyncio.to_thread(step)
            assert not await kernel.link_in_sandbox(sandbox.path, ALTNAME).wait_placed(
                PLACED, 0.0
            )  # a new call finds it unfinished
            assert not waiting.done()
        sandbox.ip("route add default via 10.1.0.1")
        assert await waiting
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).wait_placed(PLACED, 0.0)


async def test_wait_placed_has_a_time_limit(kernel: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """It gives up at the limit, and at once where the sandbox does not exist."""
    assert not await kernel.link_in_sandbox(sandbox.path, ALTNAME).wait_placed(PLACED, 0.01)
    assert not await kernel.link_in_sandbox(tmp_path / "nowhere", ALTNAME).wait_placed(PLACED, 60.0)


async def test_a_cancelled_wait_ends_its_thread(kernel: Kernel, sandbox: Namespace) -> None:
    """The thread does not live until the time limit."""
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(kernel.link_in_sandbox(sandbox.path, ALTNAME).wait_placed(PLACED, 600.0))
        while count_threads() == 0:  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.001)
        waiting.cancel()
    assert waiting.cancelled()  # and its work has ended: the block would have timed out


STALE = "02:00:00:00:00:99"
ADDRESSES = ("10.1.0.2", "fd00::2")


def knows(host: Namespace, mac: str, address: str) -> bool:
    """Return whether the host knows an address behind `outside` with a MAC."""
    return f"lladdr {mac} " in host.run(f"ip neighbour show {address} dev outside").decode()


def learn_stale(host: Namespace) -> None:
    """Let the host have used both addresses with another MAC just now."""
    host.ip("address add 10.1.0.1/24 dev outside", "address add fd00::1/64 dev outside nodad")
    for address in ADDRESSES:
        host.ip(f"neighbour replace {address} lladdr {STALE} dev outside nud reachable")


async def test_a_neighbour_learns_the_mac_at_once(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Of an IPv4 and an IPv6 address, although its entries are fresh; no packet was exchanged before."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    learn_stale(host)
    announced = await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce()
    assert tuple(map(str, announced or ())) == ADDRESSES
    mac = get_str(sandbox.link("eth7"), "address")
    for address in ADDRESSES:
        wait_until(partial(knows, host, mac, address), f"{mac} of {address}", 1.0)


async def test_a_link_that_is_not_in_the_sandbox_yet(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Nothing is announced, and the caller learns it: libnetwork may still place the link."""
    await prepare(kernel, host, staging)
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce() is None
    host.ip("link delete outside")


async def test_links_that_announce_nothing(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """One without ARP announces no address; one that is down is an error."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    sandbox.ip("link set eth7 arp off")
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce() == ()
    sandbox.ip("link set eth7 arp on down")
    with pytest.raises(KernelError, match="announce the addresses"):
        await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce()
