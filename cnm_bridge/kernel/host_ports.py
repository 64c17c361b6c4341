# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ports of the host: whether a port is in use, and which are free. Tested by binding a socket and closing it.

`portmap` does not check: it silently takes over a port that a program listens on.
"""

import socket
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address
from typing import Final

__all__ = ["HostPorts"]

_SOCKETS: Final = {
    "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
    "sctp": (socket.SOCK_STREAM, socket.IPPROTO_SCTP),
}
_EVERYWHERE: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 - every address is meant


class HostPorts:
    """The ports of the namespace that the caller is in."""

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
        """Return why a program could not have a port now, in the kernel's words; None if it could.

        Args:
            protocol: `tcp`, `udp` or `sctp`.
            host_ip: The address, None for all.
            port: The port.
        """
        for family, address in _addresses(host_ip):
            try:
                _bind(protocol, family, address, port)
            except _Unsupported:
                continue
            except OSError as exc:
                return exc.strerror or str(exc)
        return None

    def propose(self, protocol: str, host_ip: IPv4Address | IPv6Address | None) -> int:
        """Return a port that was free a moment ago, of those that the kernel itself gives to programs.

        Raises:
            OSError: There is none; or the host does not have the address.
        """
        family, address = _addresses(host_ip)[0]
        try:
            return _bind(protocol, family, address, 0)
        except _Unsupported:  # then no port of it is in use
            return _bind("tcp", family, address, 0)


class _Unsupported(Exception):
    """The kernel does not know the protocol or the family, so that no program can have a port of it."""


def _addresses(host_ip: IPv4Address | IPv6Address | None) -> tuple[tuple[socket.AddressFamily, str], ...]:
    if host_ip is None:
        return _EVERYWHERE
    return ((socket.AF_INET if isinstance(host_ip, IPv4Address) else socket.AF_INET6, str(host_ip)),)


def _bind(protocol: str, family: socket.AddressFamily, address: str, port: int) -> int:
    kind, number = _SOCKETS[protocol]
    try:
        sock = socket.socket(family, kind, number)
    except OSError as exc:
        raise _Unsupported from exc
    with closing(sock):
        if family is socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind is socket.SOCK_STREAM:
            # Connections of a program that is gone do not keep its port; one that listens does, also with this.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        bound: int = sock.getsockname()[1]
        return bound
