# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Destinations with which a guarded network is tested: one that its allow-list has, one that it has not; pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

__all__ = ["REFUSED", "Guard", "parse_lookup"]

REFUSED: Final = IPv4Address("192.0.2.1")
"""An address that nothing has (RFC 5737)."""
_ENTRY: Final = re.compile(r"(?!host:)(?P<host>[\w.-]+)(?::(?P<port>\d+)(?:/tcp)?)?")
_WEB: Final = 443
_NETWORK: Final = re.compile(r"(?P<network>[\d.]+(?:/\d+)?)(?::(?:\*|(?P<first>\d+)(?:-(?P<last>\d+))?))?(?:/tcp)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How a network is guarded.

    Attributes:
        entries: Its allow-list.
        name_server: The value of `--dns` that its containers need; None if they need none.
        is_audited: Whether everything passes.
    """

    entries: Sequence[str]
    name_server: str | None = None
    is_audited: bool = False

    def refuses(self, address: IPv4Address, port: int) -> bool:
        """Return whether no network of the allow-list has an address with a port of TCP."""
        return not self.is_audited and not any(_has(entry, address, port) for entry in self.entries)

    def destinations(self) -> Iterator[tuple[str, int]]:
        """Yield names and IPv4 addresses of the allow-list, each with a port of TCP."""
        for entry in self.entries:
            found = _ENTRY.fullmatch(entry)
            if found is not None:
                yield found["host"], int(found["port"] or _WEB)


def _has(entry: str, address: IPv4Address, port: int) -> bool:
    found = _NETWORK.fullmatch(entry)
    try:
        if found is None or address not in ip_network(found["network"], strict=False):
            return False
    except ValueError:  # it is a name, such as 1.2.3
        return False
    first = found["first"]
    return first is None or int(first) <= port <= int(found["last"] or first)


def parse_lookup(output: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """Return the addresses in the output of `nslookup`, without that of the server."""
    _, _, answer = output.partition("Name:")
    found = re.findall(r"^Address(?: \d+)?:\s+([0-9a-fA-F.:]+)", answer, re.MULTILINE)
    return tuple(map(ip_address, found))
