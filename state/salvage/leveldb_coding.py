# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The encodings that LevelDB's logs and tables share, and what is read out of them.

Sources: LevelDB, doc/log_format.md and doc/table_format.md; RFC 3720 appendix B.4 for the polynomial of CRC-32C;
google/snappy, format_description.txt.
"""

from dataclasses import dataclass
from typing import Final

_BITS: Final = 64
_MORE: Final = 0x80
_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8
_LONG: Final = 60
"""From here on a literal's length is not in its tag, but in the bytes behind it."""


class FormatError(ValueError):
    """Bytes that are not what LevelDB writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key's value from one moment on.

    Attributes:
        sequence: The moment; the highest of a key counts.
        key: The key.
        value: Its value, None where the key was removed.
    """

    sequence: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A part of a file that cannot be used.

    Attributes:
        offset: Where it begins, in bytes.
        content: What is there.
        is_end: It reaches to the end of the file, as a write that was cut off does.
    """

    offset: int
    content: bytes
    is_end: bool = False


def parse_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length number at an offset, and the offset behind it.

    Raises:
        FormatError: It has no end.
    """
    number = shift = 0
    while at < len(data) and shift < _BITS:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < _MORE:
            return number, at
        shift += 7
    raise FormatError("a number has no end")


def _table() -> tuple[int, ...]:
    entries = []
    for number in range(256):
        crc = number
        for _ in range(8):
            crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
        entries.append(crc)
    return tuple(entries)


CRC_TABLE: Final = _table()
"""What one byte does to a running checksum: `CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)`."""


def mask(crc: int) -> int:
    """Return the stored form of a finished CRC-32C, which differs, for a file may hold files."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """Return the checksum of `data` as it is stored (some 10 MB/s: this is for files that are damaged)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return mask(crc ^ 0xFFFFFFFF)


def decompress(data: bytes) -> bytes:
    """Return what `data` stands for in Snappy.

    Raises:
        FormatError: It is not Snappy's.
    """
    size, at = parse_varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= _LONG:
                width = length - _LONG + 1
                length = int.from_bytes(data[at : at + width], "little")
                at += width
            length += 1
            out += data[at : at + length]
            at += length
            continue
        if tag & 3 == 1:
            length, width, high = ((tag >> 2) & 7) + 4, 1, (tag >> 5) << 8
        else:
            length, width, high = (tag >> 2) + 1, 2 * ((tag & 3) - 1), 0
        distance = high | int.from_bytes(data[at : at + width], "little")
        at += width
        if not 0 < distance <= len(out):
            raise FormatError("a copy of what is not there")
        for _ in range(length):  # it may overlap what it writes
            out.append(out[-distance])
    if len(out) != size:
        raise FormatError(f"{len(out)} bytes that should be {size}")
    return bytes(out)
