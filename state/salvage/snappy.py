# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A Snappy decompressor, for LevelDB's tables. Source: google/snappy, format_description.txt."""

from typing import Final

from cni_bridge_state.salvage.leveldb_coding import FormatError, parse_varint

_LONG: Final = 60
"""From here on a literal's length is not in its tag, but in the bytes behind it."""


def decompress(data: bytes) -> bytes:
    """Return what `data` stands for.

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
