# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lines of the log of refusals: read again, followed, and the entries that would have allowed what they tell."""

import json
import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from cni_egress.policy import BadEntry, Policy
from cni_egress.refusals import Kind
from cni_invoker.documents.jsontypes import JsonObject

__all__ = ["follow_lines", "learn_entries", "read_lines"]

_PAUSE_S: Final = 0.3
_WEB: Final = frozenset({"80/tcp", "443/tcp", "443/udp"})
"""What a name alone allows."""
_PORTED: Final = frozenset({"tcp", "udp"})
_ADDRESS_TYPES: Final = frozenset({1, 28})


def read_lines(path: Path) -> Iterator[JsonObject]:
    """Yield the lines of a log and of its predecessor, oldest first. What is no line of it is left out."""
    for one in (path.with_name(f"{path.name}.1"), path):
        with suppress(FileNotFoundError), one.open("rb") as opened:
            for line in opened:
                yield from _parse(line)


def follow_lines(path: Path) -> Generator[JsonObject]:
    """Yield the lines that come from now on, without end; the file may be replaced, and need not exist yet."""
    begins_at_end = True
    while True:
        with suppress(FileNotFoundError), path.open("rb") as opened:
            if begins_at_end:
                opened.seek(0, os.SEEK_END)
            yield from _follow_file(opened, path)
        begins_at_end = False
        time.sleep(_PAUSE_S)


def _follow_file(opened: BinaryIO, path: Path) -> Iterator[JsonObject]:
    """Yield the lines that are appended to a file, until another one has its name."""
    line = b""
    is_replaced = False
    while True:
        while data := opened.readline():
            line += data
            if line.endswith(b"\n"):
                yield from _parse(line)
                line = b""
        if is_replaced:
            return
        time.sleep(_PAUSE_S)
        try:
            is_replaced = path.stat().st_ino != os.fstat(opened.fileno()).st_ino
        except FileNotFoundError:
            is_replaced = True


def learn_entries(lines: Iterable[JsonObject]) -> list[str]:
    """Return the entries that allow what some lines tell.

    Connections count by the name that led to them. A query for addresses without a connection needs no entry.

    Args:
        lines: Lines of the log.
    """
    ports: dict[str, set[str]] = {}
    for line in lines:
        name, address, protocol = line.get("name"), line.get("address"), line.get("protocol")
        is_connection = line.get("kind") == Kind.CONNECTION and protocol in _PORTED
        if isinstance(name, str) and is_connection:
            ports.setdefault(name, set()).add(f"{line.get('port')}/{protocol}")
        elif isinstance(name, str) and line.get("kind") == Kind.NAME and line.get("type") not in _ADDRESS_TYPES:
            ports.setdefault(name, set())
        elif isinstance(address, str) and is_connection:
            target = f"[{address}]" if ":" in address else address
            ports.setdefault(target, set()).add(f"{line.get('port')}/{protocol}")
    entries = []
    for target, found in sorted(ports.items()):
        is_web = not target.startswith("[") and not target[-1].isdigit() and found <= _WEB
        entries += [target] if is_web else [f"{target}:{one}" for one in sorted(found)]
    return [entry for entry in entries if _is_valid(entry)]


def _is_valid(entry: str) -> bool:
    """Return whether an entry is one: containers may ask for anything."""
    try:
        Policy.parse([entry])
    except BadEntry:
        return False
    return True


def _parse(line: bytes) -> Iterator[JsonObject]:
    with suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            yield found
