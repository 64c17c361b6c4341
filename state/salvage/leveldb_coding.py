# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The encodings that LevelDB's logs and tables share, and what is read out of them."""

from dataclasses import dataclass
from typing import Final

_BITS: Final = 64
_MORE: Final = 0x80


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
