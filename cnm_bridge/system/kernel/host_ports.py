# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tests whether ports of the host are free, by binding a socket and closing it.

`portmap` does not check: it silently takes over a port that a program listens on.
"""

import socket
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address
from typing import Final

_SOCKETS: Final = {
    "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
    "sctp": (socket.SOCK_STREAM, socket.IPPROTO_SCTP),
}
_EVERYWHERE: Final = ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"))  # noqa: S104 - every address is meant


class HostPorts:
    """The ports of the namespace that the caller is in."""

    def find_obstacle(self, protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
        """Return the kernel's reason why a program could not bind a port now, None if it could.

        The protocol is `tcp`, `udp` or `sctp`. Without `host_ip` all addresses are bound.
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
        """Return a port of the kernel's ephemeral range that was free a moment ago.

        Raise `OSError` if no port is free, or the host does not have the address.
        """
        family, address = _addresses(host_ip)[0]
        try:
            return _bind(protocol, family, address, 0)
        except _Unsupported:  # so no program can use the port
            return _bind("tcp", family, address, 0)


class _Unsupported(Exception):
    """The kernel does not support the protocol or the address family."""


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
            # Ignores connections left by a program that has ended. A listening socket still blocks the port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        bound: int = sock.getsockname()[1]
        return bound
