# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Chooses ports of the host for a container: requested ones, those it had before, or any free ones."""

import errno
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Final

from cni_bridge_state import PortRequest
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.ports import PROTOCOLS, PortMapping, place_of
from cnm_bridge.system.kernel import HostPorts
from cnm_bridge.system.scheduling import TimeSlice

_TRIES: Final = 64
"""Number of free ports that the kernel is asked for, in case they belong to other endpoints."""


async def choose_ports(
    requests: Iterable[PortRequest],
    earlier: Iterable[PortMapping],
    find_owner: Callable[[PortMapping], str | None],
    free: HostPorts,
) -> AsyncIterator[PortMapping]:
    """Yield a port of the host for each request. Other tasks run in between, so claim each port immediately.

    The endpoint's earlier ports are chosen again if possible. `find_owner` returns the owner of a port in words, None
    if it has none.

    Raises:
        Refused: A port belongs to another endpoint or to a program, no port is free, or the protocol has no ports.
    """
    choice = _Choice(earlier, find_owner, free)
    for request in dict.fromkeys(requests):
        yield await choice.choose(request)


class _Choice:
    """The choice of different ports for one endpoint."""

    def __init__(
        self, earlier: Iterable[PortMapping], find_owner: Callable[[PortMapping], str | None], free: HostPorts
    ) -> None:
        self._find_owner = find_owner
        self._free = free
        self._time_slice = TimeSlice()
        self._chosen: dict[tuple[str, int], list[PortMapping]] = {}
        self._earlier: dict[tuple[object, ...], list[PortMapping]] = {}
        for mapping in earlier:
            self._earlier.setdefault((mapping.protocol, mapping.host_ip, mapping.container_port), []).append(mapping)

    async def choose(self, request: PortRequest) -> PortMapping:
        """Return the port for a request; errors as `choose_ports`."""
        protocol = PROTOCOLS.get(request.protocol)
        if protocol is None:
            raise Refused(f"ports of IP protocol {request.protocol} cannot be published, only tcp, udp and sctp")
        chosen = await self._first_free(self._find_earlier(request, protocol))
        if isinstance(chosen, str):
            chosen = await (self._of_range if request.host_port else self._of_all)(request, protocol)
        self._chosen.setdefault((protocol, chosen.host_port), []).append(chosen)
        return chosen

    def _find_earlier(self, request: PortRequest, protocol: str) -> Iterator[PortMapping]:
        wanted = range(request.host_port, request.host_port_end + 1) if request.host_port else range(1, 1 << 16)
        for mapping in self._earlier.get((protocol, request.host_ip, request.container_port), ()):
            if mapping.host_port in wanted:
                yield mapping

    async def _of_range(self, request: PortRequest, protocol: str) -> PortMapping:
        first, last = request.host_port, request.host_port_end
        chosen = await self._first_free(_mapping(request, protocol, port) for port in range(first, last + 1))
        if isinstance(chosen, PortMapping):
            return chosen
        place = place_of(request.host_ip, first)
        if first == last:
            advice = (
                f"choose another port, or stop what has this one (docker ps --filter publish={first}, or ss -lntup)"
            )
            if chosen == os.strerror(errno.EADDRNOTAVAIL):
                advice = "choose an address that the host has (ip address)"
            raise Refused(f"port {place}/{protocol} cannot be published: {chosen}; {advice}")
        raise Refused(
            f"no port of {place}-{last}/{protocol} can be published; reason for the last one: {chosen}; choose others"
        )

    async def _of_all(self, request: PortRequest, protocol: str) -> PortMapping:
        try:
            chosen = await self._first_free(
                _mapping(request, protocol, self._free.propose(protocol, request.host_ip)) for _ in range(_TRIES)
            )
        except OSError as exc:
            chosen = exc.strerror or str(exc)
        if isinstance(chosen, PortMapping):
            return chosen
        raise Refused(f"no port of the host is free for {request.container_port}/{protocol}: {chosen}")

    async def _first_free(self, candidates: Iterable[PortMapping]) -> PortMapping | str:
        """Return the first available port, or the reason why the last one is not available."""
        last = ""
        for candidate in candidates:
            await self._time_slice.pause()
            obstacle = self._find_obstacle(candidate)
            if obstacle is None:
                return candidate
            last = obstacle
        return last

    def _find_obstacle(self, mapping: PortMapping) -> str | None:
        if any(mapping.overlaps(other) for other in self._chosen.get((mapping.protocol, mapping.host_port), ())):
            return "it is requested twice"
        owner = self._find_owner(mapping)
        return owner or self._free.find_obstacle(mapping.protocol, mapping.host_ip, mapping.host_port)


def _mapping(request: PortRequest, protocol: str, port: int) -> PortMapping:
    return PortMapping(
        protocol=protocol, host_ip=request.host_ip, host_port=port, container_port=request.container_port
    )
