# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""CRC-32C as LevelDB stores it: of a record of a log, of a block of a table.

Source: LevelDB, doc/log_format.md, doc/table_format.md, and RFC 3720 appendix B.4 for the polynomial.
"""

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
_MASK_DELTA: Final = 0xA282EAD8


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
    """Return the stored form of a finished checksum, which differs, for a file may hold files."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """Return the checksum of `data` as it is stored (some 10 MB/s: this is for files that are damaged)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return mask(crc ^ 0xFFFFFFFF)
