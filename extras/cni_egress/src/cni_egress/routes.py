# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where packets to an address go, as the kernel says."""

import errno
import socket
import struct
from typing import Final, Self

from cni_egress.netlink import NetlinkError, Socket, attribute
from cni_egress.records import IpAddress

__all__ = ["Routes"]

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
