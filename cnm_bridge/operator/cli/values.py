# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Values as a terminal shows them: numbers of things, ages, published ports. Pure but for the time."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cni_bridge_spec import JsonObject, find_int, find_str

UNKNOWN: Final = "?"
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def count(number: int, noun: str) -> str:
    """Return a number of things in words, e.g. `1 endpoint`, `2 endpoints` or `2 addresses`."""
    return f"{number} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def changed_text(network: JsonObject) -> str:
    """Return that a network's configuration has changed since endpoints were made; empty if it has not.

    Args:
        network: The network, as in `spec/admin/status.json`.
    """
    outdated = find_int(network, "outdatedEndpoints") or 0
    return f"since {count(outdated, 'endpoint')} {'was' if outdated == 1 else 'were'} made" if outdated else ""


def age(created_at: int | None) -> str:
    """Return how long ago a time was, e.g. `3h`."""
    if created_at is None:
        return UNKNOWN
    return duration(int(time.time()) - created_at)


def duration(seconds: int) -> str:
    """Return a number of seconds as `90s` is written, in its largest unit."""
    seconds = max(0, seconds)
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds // size}{unit}"


def ports_text(ports: Iterable[JsonObject]) -> str:
    """Return published ports in order, successive ones as a range, e.g. `127.0.0.1:8080->80/tcp, 9000-9003->80-83/udp`.

    Args:
        ports: E.g. `{"hostIP": "127.0.0.1", "hostPort": 8080, "containerPort": 80, "protocol": "tcp"}`.
    """
    return ", ".join(map(str, _merge(sorted(map(_Range.of, ports)))))


@dataclass(frozen=True, slots=True, order=True)
class _Range:
    host_ip: str
    protocol: str
    host: int
    container: int
    more: int = 0

    @classmethod
    def of(cls, port: JsonObject) -> "_Range":
        return cls(
            find_str(port, "hostIP") or "",
            find_str(port, "protocol") or "tcp",
            find_int(port, "hostPort") or 0,
            find_int(port, "containerPort") or 0,
        )

    def precedes(self, other: "_Range") -> bool:
        """Return whether another port continues the range."""
        step = self.more + 1
        return replace(self, host=self.host + step, container=self.container + step, more=0) == other

    def __str__(self) -> str:
        host_ip = f"[{self.host_ip}]:" if ":" in self.host_ip else f"{self.host_ip}:" if self.host_ip else ""
        return f"{host_ip}{self._span(self.host)}->{self._span(self.container)}/{self.protocol}"

    def _span(self, first: int) -> str:
        return f"{first}-{first + self.more}" if self.more else str(first)


def _merge(ports: Iterable[_Range]) -> Iterator[_Range]:
    current: _Range | None = None
    for port in ports:
        if current is not None and current.precedes(port):
            current = replace(current, more=current.more + 1)
            continue
        if current is not None:
            yield current
        current = port
    if current is not None:
        yield current
