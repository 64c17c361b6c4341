# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Destinations with which a guarded network is tested: one that its allow-list has, one that it has not; pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

__all__ = ["REFUSED", "Guard", "parse_lookup"]

REFUSED: Final = IPv4Address("192.0.2.1")
"""An address that nothing has (RFC 5737)."""
_ENTRY: Final = re.compile(r"(?!host:)(?P<host>[\w.-]+)(?::(?P<port>\d+)(?:/tcp)?)?")
_WEB: Final = 443
_EVERYTHING: Final = "0.0.0.0/0"


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

    @property
    def lets_all_out(self) -> bool:
        """Whether an unknown address is reached."""
        return self.is_audited or any(entry.startswith(_EVERYTHING) for entry in self.entries)

    def destinations(self) -> Iterator[tuple[str, int]]:
        """Yield names and IPv4 addresses of the allow-list, each with a port of TCP."""
        for entry in self.entries:
            found = _ENTRY.fullmatch(entry)
            if found is not None:
                yield found["host"], int(found["port"] or _WEB)


def parse_lookup(output: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """Return the addresses in the output of `nslookup`, without that of the server."""
    _, _, answer = output.partition("Name:")
    found = re.findall(r"^Address(?: \d+)?:\s+([0-9a-fA-F.:]+)", answer, re.MULTILINE)
    return tuple(map(ip_address, found))
