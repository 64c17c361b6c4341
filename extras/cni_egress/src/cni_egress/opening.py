# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Opens the addresses of answers in the kernel, in a thread of its own: the kernel may be busy for seconds."""

import asyncio
import errno
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from cni_egress.elements import Elements
from cni_egress.netlink import NetlinkError, Socket, attribute
from cni_egress.nftables import Nftables
from cni_egress.policy import Ports
from cni_egress.records import IpAddress, Record, Records

__all__ = ["OpeningThread", "Routes"]

_ROUTE: Final = struct.Struct("=BBBBBBBBI")  # rtmsg in rtnetlink(7)
_GET_ROUTE: Final = 26
_DESTINATION: Final = 1
_TYPE: Final = 7
_HOSTS_OWN: Final = frozenset({2, 3, 4, 5})
"""The types of routes that end at the host: local, broadcast, anycast, multicast."""
_FAMILIES: Final = {4: socket.AF_INET, 6: socket.AF_INET6}


class Routes:
    """Asks the kernel where packets to an address go. One thread at a time may use it."""

    def __init__(self) -> None:
        self._socket = Socket(socket.NETLINK_ROUTE)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def is_hosts_own(self, address: IpAddress) -> bool:
        """Return whether packets to an address end at this host.

        Raises:
            NetlinkError: The kernel does not answer.
        """
        data = address.packed
        body = _ROUTE.pack(_FAMILIES[address.version], len(data) * 8, 0, 0, 0, 0, 0, 0, 0)
        try:
            route = self._socket.ask(_GET_ROUTE, body + attribute(_DESTINATION, data))
        except NetlinkError as exc:
            if exc.errno == errno.ETIMEDOUT:
                raise
            return False  # there is no route to it
        return route is not None and _ROUTE.unpack_from(route)[_TYPE] in _HOSTS_OWN


class OpeningThread:
    """The thread that opens addresses, one answer after another.

    Args:
        records: Says whether the record that an answer is for is still in force.
    """

    def __init__(self, records: Records) -> None:
        self._nftables = Nftables()
        self._elements = Elements(self._nftables, records)
        self._routes = Routes()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="opening")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._routes.close()
        self._nftables.close()

    async def open(
        self, record: Record, addresses: tuple[IpAddress, ...], ports: Ports, timeout_s: float
    ) -> frozenset[IpAddress]:
        """Let a container reach addresses at ports, and return when the kernel has acknowledged it.

        Returns:
            Those among the addresses that are the host's own, which are not opened.

        Raises:
            RecordGone: The record is no longer in force; nothing was opened.
            NetlinkError: The kernel refuses.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._open, record, addresses, ports, timeout_s)

    def _open(
        self, record: Record, addresses: tuple[IpAddress, ...], ports: Ports, timeout_s: float
    ) -> frozenset[IpAddress]:
        own = frozenset(address for address in addresses if self._routes.is_hosts_own(address))
        destinations = [address for address in addresses if address not in own]
        if destinations:
            self._elements.allow(record, destinations, ports, timeout_s)
        return own
