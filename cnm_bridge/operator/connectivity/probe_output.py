# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads what commands print inside a container. Pure."""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address


def parse_addresses(output: str) -> tuple[Address, ...]:
    """Return the addresses that `ip addr` shows, without those of `lo` and link-local ones."""
    found = map(ip_address, re.findall(r"^\s+inet6? ([0-9a-f.:]+)", output, re.MULTILINE))
    return tuple(address for address in found if not address.is_loopback and not address.is_link_local)


def parse_gateways(outputs: Iterable[str]) -> tuple[Address, ...]:
    """Return the gateways of the default routes that `ip route` and `ip -6 route` show."""
    return tuple(
        ip_address(gateway)
        for output in outputs
        for gateway in re.findall(r"^default via ([0-9a-f.:]+)", output, re.MULTILINE)
    )


def parse_mtu(output: str) -> int | None:
    """Return the smallest MTU that `ip link` shows, without that of `lo`; None if there is none."""
    found = re.findall(r"^\d+: (?!lo:)[^:]+: .* mtu (\d+)", output, re.MULTILINE)
    return min(map(int, found), default=None)


def url(address: Address | str, port: int) -> str:
    """Return the address of a web server."""
    host = f"[{address}]" if ":" in str(address) else str(address)
    return f"http://{host}:{port}/"
