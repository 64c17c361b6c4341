# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A damaged LevelDB: how to notice it, and how to read everything in it that is good. Changes no file.

LevelDB notices most damage itself, but not all: a database without its file CURRENT it takes for a new one, and what
lies behind a piece of a log whose length is damaged it drops in silence. Its own repair reads logs without looking at
their checksums, and so may hand out a record that nobody has written. Hence our own reading, in which every byte that
counts has fitted a checksum.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from state.salvage.leveldb_coding import Change, FormatError, Gap
from state.salvage.leveldb_log import has_good_frame, parse_batch, read_log
from state.salvage.leveldb_table import read_table
from state.salvage.snappy import decompress

__all__ = ["Loss", "Salvage", "find_fault", "read_good"]

_FIRST_MANIFEST: Final = "MANIFEST-000001"
_CURRENT: Final = re.compile(rb"MANIFEST-[0-9]+\n")
_TABLES: Final = frozenset({".ldb", ".sst"})
_IDENTIFIER: Final = re.compile(rb'(?<!"networkId":")(?:[0-9a-f]{64}|(?<=network/)[0-9a-z]{25})')


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A part of a file that cannot be read.

    Attributes:
        what: File, place and size.
        ids: The networks and endpoints that are named there.
    """

    what: str
    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Salvage:
    """What is good in a database.

    Attributes:
        entries: The newest good value of each key that was not removed.
        losses: What is not good.
    """

    entries: Mapping[str, bytes]
    losses: tuple[Loss, ...]


def find_fault(directory: Path) -> str | None:
    """Return what is wrong with a database that LevelDB might open without a word; None if nothing shows.

    Raises:
        OSError: A file cannot be read at all.
    """
    names = {path.name for path in directory.iterdir()}
    manifests = {name for name in names if name.startswith("MANIFEST-")}
    logs = {name for name in names if name.endswith(".log")}
    tables = {name for name in names if Path(name).suffix in _TABLES}
    if "CURRENT" not in names:
        # A database whose making was cut off has a first manifest at most, and nothing in it.
        return "CURRENT is missing" if logs or tables or manifests - {_FIRST_MANIFEST} else None
    current = (directory / "CURRENT").read_bytes()
    if not _CURRENT.fullmatch(current):
        return "CURRENT is damaged"
    manifest = current.decode("ascii").strip()
    if manifest not in names:
        return f"{manifest} is missing"
    if not logs and (tables or manifest != _FIRST_MANIFEST):
        return "the log is missing"
    for name in (manifest, *sorted(logs)):
        if not has_good_frame((directory / name).read_bytes()):
            return f"{name} is damaged, or was cut off while it was written"
    return None


def read_good(directory: Path) -> Salvage:
    """Return what is good in a database, whether it has damage or not.

    Where the newest value of a key is lost, the one before counts, also for a key that was removed since.

    Raises:
        OSError: A file cannot be read at all.
    """
    changes: list[Change] = []
    losses: list[Loss] = []
    for path in sorted(directory.iterdir()):
        if path.suffix == ".log":
            found, lost = _read_log(path)
        elif path.suffix in _TABLES:
            table = read_table(path.read_bytes())
            found, lost = table.changes, _losses(path, table.gaps)
        else:
            continue
        changes += found
        losses += lost
    newest: dict[bytes, Change] = {}
    for change in changes:
        known = newest.get(change.key)
        if known is None or known.sequence <= change.sequence:
            newest[change.key] = change
    entries = {
        key.decode("utf-8", "backslashreplace"): change.value
        for key, change in sorted(newest.items())
        if change.value is not None
    }
    return Salvage(entries, tuple(losses))


def _read_log(path: Path) -> tuple[tuple[Change, ...], tuple[Loss, ...]]:
    content = read_log(path.read_bytes())
    changes: list[Change] = []
    gaps = list(content.gaps)
    for record in content.records:
        try:
            changes += parse_batch(record)
        except FormatError:
            gaps.append(Gap(offset=0, content=record))
    return tuple(changes), _losses(path, gaps)


def _losses(path: Path, gaps: Iterable[Gap]) -> tuple[Loss, ...]:
    return tuple(
        Loss(
            what=f"{path.name}: {len(gap.content)} bytes at {gap.offset} cannot be read"
            + (", to the end of the file" if gap.is_end else ""),
            ids=_named(gap.content),
        )
        for gap in gaps
    )


def _named(content: bytes) -> frozenset[str]:
    """Return the identifiers of records in bytes that are damaged: a hint, for they may be so themselves."""
    texts = [content]
    with suppress(FormatError):
        texts.append(decompress(content))
    return frozenset(found.decode("ascii") for text in texts for found in _IDENTIFIER.findall(text))
