# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads the intact blocks of LevelDB's table files; LevelDB's own repair uses a damaged table as a whole or not at all.

A table is a sequence of blocks, each followed by its compression type (1 byte) and a checksum (4): data blocks, the
index, and a footer with the position of the index. Source: LevelDB, doc/table_format.md.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cni_bridge_state.salvage.leveldb_coding import (
    CRC_TABLE,
    Change,
    FormatError,
    Gap,
    decompress,
    mask,
    masked_crc,
    parse_varint,
)

_FOOTER_BYTES: Final = 48
_MAGIC: Final = bytes.fromhex("57fb808b247547db")
_TRAILER: Final = struct.Struct("<BI")
_PLAIN, _SNAPPY = 0, 1
_TAIL_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class TableContent:
    """What a table holds.

    Attributes:
        changes: The changes of the blocks that are good.
        gaps: The blocks that are not.
    """

    changes: tuple[Change, ...]
    gaps: tuple[Gap, ...]


def read_table(data: bytes) -> TableContent:
    """Return the changes in a table; without its index it is read from the beginning, up to the first fault."""
    try:
        handles = _data_blocks(data)
    except FormatError:
        return _read_in_order(data)
    changes: list[Change] = []
    gaps: list[Gap] = []
    for offset, size in handles:
        try:
            changes += _parse_changes(_block(data, offset, size))
        except FormatError:
            gaps.append(Gap(offset=offset, content=data[offset : offset + size]))
    return TableContent(tuple(changes), tuple(gaps))


def _read_in_order(data: bytes) -> TableContent:
    """Find each block's end by its checksum, one after the other, up to the empty one that follows the last."""
    changes: list[Change] = []
    at = 0
    while (end := _block_end(data, at)) is not None:
        try:
            found = _parse_changes(_block(data, at, end - at))
        except FormatError:
            break
        if not found:  # what comes now is the index: its keys look like ours, its values are none
            break
        changes += found
        at = end + _TRAILER.size
    return TableContent(tuple(changes), (Gap(offset=at, content=data[at:], is_end=True),))


def _data_blocks(data: bytes) -> list[tuple[int, int]]:
    """Return offset and size of each data block, as the index has them."""
    if len(data) < _FOOTER_BYTES or not data.endswith(_MAGIC):
        raise FormatError("no footer")
    footer = data[-_FOOTER_BYTES:]
    at = 0
    for _ in range(2):  # the handle of the metaindex
        _, at = parse_varint(footer, at)
    offset, at = parse_varint(footer, at)
    size, _ = parse_varint(footer, at)
    handles = []
    for _, value in _entries(_block(data, offset, size)):
        block, at = parse_varint(value, 0)
        handles.append((block, parse_varint(value, at)[0]))
    return handles


def _block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER.size > len(data):
        raise FormatError("a block is cut off")
    compression, crc = _TRAILER.unpack_from(data, end)
    if masked_crc(data[offset : end + 1]) != crc:
        raise FormatError("a block does not fit its checksum")
    if compression == _PLAIN:
        return data[offset:end]
    if compression == _SNAPPY:
        return decompress(data[offset:end])
    raise FormatError(f"an unknown compression {compression}")


def _block_end(data: bytes, start: int) -> int | None:
    """Return where the block that begins at `start` ends, None if nothing there fits a checksum."""
    crc = 0xFFFFFFFF
    for at in range(start, len(data) - _TRAILER.size + 1):
        byte = data[at]
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        if byte in {_PLAIN, _SNAPPY} and mask(crc ^ 0xFFFFFFFF) == _TRAILER.unpack_from(data, at)[1]:
            return at
    return None


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give keys and values of a block; a key is stored as what it does not share with the one before."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise FormatError("a block is too short")
    at, key = 0, b""
    while at < end:
        shared, at = parse_varint(block, at)
        own, at = parse_varint(block, at)
        length, at = parse_varint(block, at)
        if shared > len(key) or at + own + length > end:
            raise FormatError("an entry is cut off")
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + length]
        at += own + length


def _parse_changes(block: bytes) -> list[Change]:
    """Return the changes in a data block; the last eight bytes of a key are its sequence and its kind."""
    changes = []
    for key, value in _entries(block):
        if len(key) < _TAIL_BYTES or key[-_TAIL_BYTES] > 1:
            raise FormatError("a key without its sequence")
        tail = int.from_bytes(key[-_TAIL_BYTES:], "little")
        changes.append(Change(sequence=tail >> 8, key=key[:-_TAIL_BYTES], value=value if tail & 0xFF else None))
    return changes
