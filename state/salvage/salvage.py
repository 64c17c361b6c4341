# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Detects a damaged LevelDB and reads its intact content. Changes no file.

LevelDB detects most damage itself, but not all: it treats a database without the file CURRENT as new, and silently
drops everything after a log piece with a damaged length. Its own repair ignores the checksums of logs and may return
records that were never written. This module therefore uses only data whose checksum is right.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_state.salvage.leveldb_coding import Change, FormatError, Gap, decompress
from cni_bridge_state.salvage.leveldb_log import has_good_frame, parse_batch, read_log
from cni_bridge_state.salvage.leveldb_table import read_table

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
    """Return a fault that LevelDB might ignore when it opens the database; None if there is none.

    Raises:
        OSError: A file cannot be read at all.
    """
    names = {path.name for path in directory.iterdir()}
    manifests = {name for name in names if name.startswith("MANIFEST-")}
    logs = {name for name in names if name.endswith(".log")}
    tables = {name for name in names if Path(name).suffix in _TABLES}
    if "CURRENT" not in names:
        # A database whose creation was interrupted has at most a first manifest and no content.
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
    """Return the intact content of a database, damaged or not.

    If the newest change of a key is lost, the previous value is returned, even if the key was removed since.

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
    """Return the IDs of records in damaged bytes: only a hint, because the IDs may be damaged too."""
    texts = [content]
    with suppress(FormatError):
        texts.append(decompress(content))
    return frozenset(found.decode("ascii") for text in texts for found in _IDENTIFIER.findall(text))
