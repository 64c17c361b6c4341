# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Real plugins whose first DEL of each container ID goes wrong: an executable that stands before the real one.

It is put as `bridge`, `host-local`, … into a directory that comes before /usr/lib/cni. Whether and how a plugin goes
wrong is in its configuration, which the real plugin ignores: `{"type": "bridge", **goes_wrong("bridge", Fault.HANGS)}`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

from spec import JsonObject

__all__ = ["Fault", "goes_wrong", "render_unreliable"]

_SCRIPT: Final = Path(__file__).with_name("unreliable.sh")
"""A shell script: the start of another interpreter would slow each plugin down by many milliseconds."""


class Fault(StrEnum):
    """What a plugin's first DEL of each container ID does."""

    FAILS_BEFORE = "fails before its work"
    FAILS_AFTER = "fails after its work"
    HANGS = "hangs"
    """Until it is killed; nothing of its work is done then."""


def goes_wrong(plugin: str, fault: Fault) -> JsonObject:
    """Give what makes a plugin of this type go wrong; it belongs to its configuration, or to that with its IPAM."""
    return {"unreliable": f"{plugin} {fault}"}


def render_unreliable(real: Path, seen: Path) -> str:
    """Give the executable.

    Args:
        real: The directory of the real plugins.
        seen: Where it notes for which container IDs it has gone wrong; it need not be there.
    """
    text = _SCRIPT.read_text(encoding="utf-8")
    return text.replace("@REAL@", str(real)).replace("@SEEN@", str(seen))
