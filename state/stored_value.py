# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A stored value: lines, of which the first is a checksum of the others.

```
0 5b1fc2a9                        CRC-32 of all that follows
1 {"id":"…","networkId":"…",…}    the record without the following
2 {"ifname":"eth0",…}             the attachment without its ID, its mode and the list
3 {"cniVersion":"1.0.0",…}        the network configuration list
4 {"cniVersion":"1.0.0",…}        the result, or null
5 {"link":{…},…}                  the snapshot, or null
```

A network has two lines. The writer validates the content, and the checksum proves to a reader that
it is unchanged. A start therefore need not parse the documents, which would take a second for ten thousand endpoints.
"""

import zlib
from collections.abc import Sequence
from typing import Final

from cni_bridge_spec import JsonError
from cni_bridge_state.errors import RecordDamaged

__all__ = ["RECORD_LINE", "check_lines", "join_lines", "line_of", "own_id"]

RECORD_LINE: Final = 1
"""The first line after the checksum."""

_DIGITS: Final = 8


def join_lines(lines: Sequence[bytes]) -> bytes:
    """Return the value of some lines, which hold no line break themselves; they become lines 1, 2, 3."""
    content = b"\n".join(lines)
    return b"%08x\n%b" % (zlib.crc32(content), content)


def check_lines(key: str, value: bytes, count: int) -> None:
    """Make sure that a value is as it was written.

    Args:
        key: The value's key.
        value: The value.
        count: How many lines it has, the checksum included.

    Raises:
        RecordDamaged: It is not.
    """
    if value[:_DIGITS] != b"%08x" % zlib.crc32(memoryview(value)[_DIGITS + 1 :]):
        raise RecordDamaged(key, "its checksum is wrong")
    found = value.count(b"\n") + 1
    if found != count:
        raise RecordDamaged(key, f"it has {found} lines, not {count}")


def line_of(value: bytes, number: int) -> bytes:
    """Return a line of a value."""
    return value.split(b"\n", number + 1)[number]


def own_id(key: str, found: str) -> str:
    """Return the ID that a record contains; it must match its key, e.g. `endpoint/4f2a`.

    Raises:
        JsonError: It does not.
    """
    if key.partition("/")[2] != found:
        raise JsonError(f"it is the record of {found}")
    return found
