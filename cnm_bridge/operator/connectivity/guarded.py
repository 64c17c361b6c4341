# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Destinations with which a guarded network is tested: one that its allow-list has, one that it has not; pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

__all__ = ["REFUSED", "Destination", "Guard", "parse_lookup"]

Address = IPv4Address | IPv6Address

REFUSED: Final = IPv4Address("192.0.2.1")
"""An address that nothing has (RFC 5737)."""
_ENTRY: Final = re.compile(
    r"(?:\[(?P<six>[^]]+)\]|(?P<plain>[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?:/\d+)?)|(?P<host>[^:]+))"
    r"(?::(?P<port>\d+|\*)(?:-\d+)?(?:/(?P<protocol>\w+))?)?"
)
_WEB: Final = 443


@dataclass(frozen=True, slots=True)
class Destination:
    """Something that an entry allows.

    Attributes:
        host: A name or an address.
        port: The port of TCP; None for a ping.
    """

    host: str
    port: int | None

    def __str__(self) -> str:
        if self.port is None:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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

    def destinations(self) -> Iterator[Destination]:
        """Yield what can be tried of the allow-list: names, and networks of one address, by TCP or a ping."""
        for entry in self.entries:
            found = _ENTRY.fullmatch(entry)
            if found is None or found["protocol"] == "udp" or entry.startswith(("@", "*", "host:")):
                continue
            host = found["six"] or found["plain"] or found["host"]
            given = found["port"]
            port = int(given) if given and given != "*" else None
            try:
                network = ip_network(host)
            except ValueError:
                yield Destination(host, port or _WEB)
            else:
                if network.num_addresses == 1:
                    yield Destination(str(network.network_address), port)

    def refuses(self, address: Address) -> bool:
        """Return whether no network of the allow-list has an address."""
        return not self.is_audited and not any(address in network for network in self._networks())

    def _networks(self) -> Iterator[IPv4Network | IPv6Network]:
        for entry in self.entries:
            found = _ENTRY.fullmatch(entry)
            if found is not None:
                try:
                    yield ip_network(found["six"] or found["plain"] or found["host"])
                except ValueError:
                    continue


def parse_lookup(output: str) -> tuple[Address, ...]:
    """Return the addresses in the output of `nslookup`, without that of the server."""
    _, _, answer = output.partition("Name:")
    found = re.findall(r"^Address(?: \d+)?:\s+([0-9a-fA-F.:]+)", answer, re.MULTILINE)
    return tuple(map(ip_address, found))
