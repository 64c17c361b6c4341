# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads the intact records of LevelDB's log files; LevelDB's own repair ignores their checksums.

A log is a sequence of 32 KiB blocks of pieces: checksum (4 bytes), length (2), type (1), content. A record is one whole
piece, or a first, some middle and a last piece. Source: LevelDB, doc/log_format.md. After a fault LevelDB skips the
rest of the block; this module continues with the next piece whose checksum is right.
"""

import struct
from dataclasses import dataclass
from typing import Final

from cni_bridge_state.salvage.leveldb_coding import Change, FormatError, Gap, masked_crc, parse_varint

_BLOCK_BYTES: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
_BATCH: Final = struct.Struct("<QI")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class LogContent:
    """What a log holds.

    Attributes:
        records: The records that are whole, in order.
        gaps: What lies between them and is none.
    """

    records: tuple[bytes, ...]
    gaps: tuple[Gap, ...]


def has_good_frame(data: bytes) -> bool:
    """Return whether the pieces of a log fill it to its last byte, without checking checksums, which would be slow.

    LevelDB finds most faults itself. But it takes a piece that is longer than the file for an interrupted write, and
    silently drops the piece and everything after it.
    """
    at = 0
    while at < len(data):
        room = _room(at)
        if room < _HEADER.size:
            at += room
            continue
        if len(data) - at < _HEADER.size:
            return False
        _, length, kind = _HEADER.unpack_from(data, at)
        if not _WHOLE <= kind <= _LAST or _HEADER.size + length > room:
            return False
        at += _HEADER.size + length
    return at == len(data)


def read_log(data: bytes) -> LogContent:
    """Return the records of a log, and the gaps in it."""
    records: list[bytes] = []
    gaps: list[Gap] = []
    begun: tuple[int, bytes] | None = None  # a record whose last piece is still to come
    at = 0

    def drop_begun() -> None:
        nonlocal begun
        if begun is not None:
            gaps.append(Gap(offset=begun[0], content=begun[1]))
            begun = None

    while at < len(data):
        room = _room(at)
        if room < _HEADER.size:
            at += room
            continue
        piece = _piece(data, at)
        if piece is None:
            drop_begun()
            end = _next_piece(data, at + 1)
            gaps.append(Gap(offset=at, content=data[at:end], is_end=end == len(data)))
            at = end
            continue
        kind, content = piece
        if kind in {_WHOLE, _FIRST}:
            drop_begun()
        if kind == _WHOLE:
            records.append(content)
        elif kind == _FIRST:
            begun = at, content
        elif begun is None:  # its beginning is in a gap
            gaps.append(Gap(offset=at, content=content))
        elif kind == _MIDDLE:
            begun = begun[0], begun[1] + content
        else:
            records.append(begun[1] + content)
            begun = None
        at += _HEADER.size + len(content)
    if begun is not None:
        gaps.append(Gap(offset=begun[0], content=begun[1], is_end=True))
    return LogContent(tuple(records), tuple(gap for gap in gaps if gap.content.strip(b"\0")))


def parse_batch(record: bytes) -> tuple[Change, ...]:
    """Return the changes of one record of a data log.

    Raises:
        FormatError: It is not a batch of changes.
    """
    if len(record) < _BATCH.size:
        raise FormatError("a batch without its header")
    sequence, count = _BATCH.unpack_from(record)
    changes: list[Change] = []
    at = _BATCH.size
    while at < len(record):
        tag = record[at]
        key, at = _text(record, at + 1)
        value = None
        if tag == 1:
            value, at = _text(record, at)
        elif tag != 0:
            raise FormatError(f"a change of the unknown kind {tag}")
        changes.append(Change(sequence=sequence + len(changes), key=key, value=value))
    if len(changes) != count:
        raise FormatError(f"a batch of {len(changes)} changes that should be {count}")
    return tuple(changes)


def _text(record: bytes, at: int) -> tuple[bytes, int]:
    length, at = parse_varint(record, at)
    if at + length > len(record):
        raise FormatError("a text is cut off")
    return record[at : at + length], at + length


def _room(at: int) -> int:
    """Return how many bytes are left of the block."""
    return _BLOCK_BYTES - at % _BLOCK_BYTES


def _piece(data: bytes, at: int) -> tuple[int, bytes] | None:
    """Return type and content of the piece at an offset, None if there is no good one."""
    if len(data) - at < _HEADER.size:
        return None
    crc, length, kind = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + length
    if not _WHOLE <= kind <= _LAST or _HEADER.size + length > _room(at) or end > len(data):
        return None
    if masked_crc(data[at + _HEADER.size - 1 : end]) != crc:
        return None
    return kind, data[at + _HEADER.size : end]


def _next_piece(data: bytes, at: int) -> int:
    """Return the offset of the next good piece, or of the end."""
    while at < len(data):
        if _room(at) >= _HEADER.size and _piece(data, at) is not None:
            return at
        at += 1
    return len(data)
