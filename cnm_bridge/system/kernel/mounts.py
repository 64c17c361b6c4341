# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Parses the list of mounts that a process sees: `/proc/<pid>/mountinfo` (proc(5)).

Any user may mount a file system of his own (fusermount), at a path with any characters. The kernel escapes space, tab,
line feed and backslash only, so nothing else separates lines and fields.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

OWN: Final = Path("/proc/self")

_ID, _DEVICE, _ROOT, _POINT = 0, 2, 3, 4
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mount: its ID, its device, the directory or file of the device that it shows, and where it is."""

    id: str
    device: str
    root: str
    point: str


def read_mounts(process: Path = OWN) -> Sequence[Mount]:
    """Return the mounts that a process sees, a later one over an earlier one at the same place.

    Args:
        process: Its directory in `/proc`.

    Raises:
        OSError: It has ended.
    """
    lines = (line.split(b" ") for line in (process / "mountinfo").read_bytes().split(b"\n") if line)
    return [Mount(*(_plain(line[field]) for field in (_ID, _DEVICE, _ROOT, _POINT))) for line in lines]


def _plain(field: bytes) -> str:
    """Return a field without its escapes: a space is written as an octal number."""
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field))
