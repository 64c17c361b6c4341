# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which ports of the host are chosen: free ones, each once, and the previously chosen ones again."""

import asyncio
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address

import pytest

from cni_bridge_state import PortRequest
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.ports import PortMapping
from cnm_bridge.driver.endpoints.port_allocation import choose_ports
from cnm_bridge.system.kernel import HostPorts
from tests.unit.cnm_bridge.core.planning.port_requests import mapping, request


class Programs(HostPorts):
    """The programs of the host, which use these ports."""

    def __init__(self, *ports: int, proposals: Collection[int] = ()) -> None:
        self._ports = frozenset(ports)
        self._proposals = iter(proposals)

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
        """Return the obstacle if a program uses the port."""
        del protocol, host_ip
        return "Address already in use" if port in self._ports else None

    def propose(self, protocol: str, host_ip: IPv4Address | IPv6Address | None) -> int:
        """Return the next proposal; without one, raise."""
        del protocol, host_ip
        try:
            return next(self._proposals)
        except StopIteration:
            raise OSError(98, "Address already in use") from None


async def choose(
    *requests: PortRequest,
    earlier: Collection[PortMapping] = (),
    others: Collection[PortMapping] = (),
    programs: Programs,
) -> tuple[PortMapping, ...]:
    """Return the chosen ports if other endpoints have some."""

    def find_owner(wanted: PortMapping) -> str | None:
        return "another endpoint has it" if any(wanted.overlaps(other) for other in others) else None

    return tuple([one async for one in choose_ports(requests, earlier, find_owner, programs)])


async def test_a_requested_port_is_chosen() -> None:
    """Protocol and address are kept; equal requests are one."""
    wanted = request(8080, host_ip="::1", protocol=132)
    assert await choose(wanted, wanted, programs=Programs()) == (mapping(8080, host_ip="::1", protocol="sctp"),)


async def test_the_first_free_port_of_a_range_is_chosen() -> None:
    """Ports of other containers, of programs, and those already chosen for this container are not free."""
    chosen = await choose(
        request(8080, 8084), request(8080, 8084, port=81), others=[mapping(8080)], programs=Programs(8081)
    )
    assert [one.host_port for one in chosen] == [8082, 8083]


async def test_any_port_is_one_proposed_by_the_kernel() -> None:
    """Ports of containers, which the kernel does not know, are skipped."""
    assert await choose(request(), others=[mapping(40000)], programs=Programs(proposals=[40000, 40001])) == (
        mapping(40001),
    )


async def test_a_previous_choice_is_repeated() -> None:
    """An endpoint keeps its ports if they match the request and are still free."""
    earlier = [mapping(40005), mapping(8083)]
    assert await choose(request(), earlier=earlier, programs=Programs()) == (mapping(40005),)
    assert await choose(request(8080, 8084), earlier=earlier, programs=Programs()) == (mapping(8083),)
    assert await choose(request(), earlier=earlier[:1], programs=Programs(40005, proposals=[40006])) == (
        mapping(40006),
    )
    assert await choose(request(port=81), earlier=earlier, programs=Programs(proposals=[40007])) == (
        mapping(40007, port=81),
    )


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([request(8080)], "port 8080/tcp cannot be published: another endpoint has it"),
        (
            [request(8081)],
            "port 8081/tcp cannot be published: Address already in use; choose",
        ),
        (
            [request(8080, 8081)],
            "no port of 8080-8081/tcp can be published; reason for the last one: Address already in use",
        ),
        ([request(9000), request(9000, port=81)], "requested twice"),
        (
            [request(9000, host_ip="::1"), request(9000, host_ip="::", port=81)],
            "[::]:9000/tcp cannot be published",
        ),
        ([request()], "no port of the host is free for 80/tcp: Address already in use"),
        ([request(9000, protocol=1)], "IP protocol 1"),
    ],
)
async def test_unavailable_ports_are_rejected(requests: list[PortRequest], message: str) -> None:
    """The error names the port and the reason."""
    with pytest.raises(Refused) as caught:
        await choose(*requests, others=[mapping(8080)], programs=Programs(8081))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("requests", "taken"),
    [([request(port) for port in range(10000, 20001)], 0), ([request(10000, 20000)], 10000)],
    ids=["many ports", "one of a long range"],
)
async def test_choosing_many_ports_does_not_block_the_event_loop(requests: list[PortRequest], taken: int) -> None:
    """Other tasks run while thousands of ports are checked."""
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count())
        chosen = await choose(*requests, programs=Programs(*range(10000, 10000 + taken)))
        counting.cancel()
    assert chosen[-1].host_port == 20000
    assert iterations > 1
