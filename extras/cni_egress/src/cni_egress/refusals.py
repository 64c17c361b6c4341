# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The log of what was refused: one line of JSON for each refusal, in a file of limited size.

```
{"schema": 1, "time": "2026-01-02T03:04:05.678Z", "kind": "connection", "why": "port not allowed", "container": "5a4d…",
 "source": "10.66.0.5", "name": "api.example.com", "address": "192.0.2.7", "port": 22, "protocol": "tcp"}
```

A key without a value is left out. The kernel limits how often a connection is logged, this module how often a name is.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

__all__ = ["SCHEMA", "Kind", "Refusal", "RefusalLog", "Why", "render"]

SCHEMA: Final = 1
"""The version of the lines. A new key does not change it; another meaning of a key does."""

_FILE_BYTES: Final = 4 << 20
_AGAIN_S: Final = 30.0
"""How long the same refusal of a name is not logged again."""
_REMEMBERED: Final = 4096
_LINES_A_SECOND: Final = 10
"""How many refused names of a container are logged in a second."""


class Kind(StrEnum):
    """What was refused."""

    CONNECTION = "connection"
    """A packet: the first of a connection, as a rule."""
    NAME = "name"
    """A query."""
    ADDRESS = "address"
    """An address in the answer to a query that is allowed."""


class Why(StrEnum):
    """Why it was refused."""

    NAME = "name not allowed"
    TYPE = "record type not allowed"
    DESTINATION = "destination not allowed"
    PORT = "port not allowed"
    NOT_PUBLIC = "address not public"
    HOST = "address of the host"
    SOURCE = "unknown source"
    SPOOFED = "source not of this container"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that a container was refused.

    Attributes:
        kind: What.
        why: Why.
        source: The address of the container.
        container: Its container ID; "" if no container has the address.
        network: The name of its network.
        name: The name that it asked for, or that led to the address; "" if none is known.
        type: The record type that it asked for, as a number.
        address: The address that it wanted to reach.
        port: The port.
        protocol: `tcp`, `udp`, `icmp`, `icmpv6`, or a number.
        audit: Whether it passed all the same, because the policy only watches.
    """

    kind: Kind
    why: Why
    source: str
    container: str = ""
    network: str = ""
    name: str = ""
    type: int | None = None
    address: str = ""
    port: int | None = None
    protocol: str = ""
    audit: bool = False


def render(refusal: Refusal, time: datetime) -> bytes:
    """Return the line of a refusal."""
    stamp = time.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    fields: dict[str, object] = {
        "schema": SCHEMA,
        "time": stamp,
        "kind": refusal.kind,
        "why": refusal.why,
        "container": refusal.container,
        "network": refusal.network,
        "source": refusal.source,
        "name": refusal.name,
        "type": refusal.type,
        "address": refusal.address,
        "port": refusal.port,
        "protocol": refusal.protocol,
        "audit": refusal.audit or None,
    }
    present = {key: value for key, value in fields.items() if value not in {"", None}}
    return json.dumps(present, separators=(",", ":")).encode("ascii") + b"\n"


class RefusalLog:
    """Appends refusals to a file; when it is full, it becomes FILE.1, and a new one is begun.

    Attributes:
        counts: How many refusals there were, those included that were not written, by (network, kind, reason, whether
            it passed because of an audit).

    Args:
        path: The file; its directory exists.
        now: Returns the time.
    """

    def __init__(self, path: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.counts: Counter[tuple[str, str, str, bool]] = Counter()
        self._path = path
        self._now = now
        self._file = path.open("ab", buffering=0)
        self._bytes = path.stat().st_size
        self._second = 0
        self._lines: Counter[str] = Counter()
        self._seen: OrderedDict[tuple[str, str, str, int | None], datetime] = OrderedDict()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, refusal: Refusal) -> None:
        """Write a refusal down, unless it repeats one of a name that has just been written.

        Raises:
            OSError: The file cannot be written.
        """
        self.counts[refusal.network, refusal.kind, refusal.why, refusal.audit] += 1
        now = self._now()
        if refusal.kind is not Kind.CONNECTION and (self._is_repeated(refusal, now) or self._is_too_much(refusal, now)):
            return
        line = render(refusal, now)
        if self._bytes + len(line) > _FILE_BYTES:
            self._begin_new_file()
        self._file.write(line)
        self._bytes += len(line)

    def _is_repeated(self, refusal: Refusal, now: datetime) -> bool:
        key = (refusal.source, refusal.name, refusal.address, refusal.type)
        before = self._seen.get(key)
        if before is not None and (now - before).total_seconds() < _AGAIN_S:
            return True
        self._seen[key] = now
        self._seen.move_to_end(key)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return False

    def _is_too_much(self, refusal: Refusal, now: datetime) -> bool:
        """Return whether a container has many lines this second already: random names must not push out all others."""
        second = int(now.timestamp())
        if second != self._second:
            self._second = second
            self._lines.clear()
        self._lines[refusal.source] += 1
        return self._lines[refusal.source] > _LINES_A_SECOND

    def _begin_new_file(self) -> None:
        self._file.close()
        self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._file = self._path.open("ab", buffering=0)
        self._bytes = 0
