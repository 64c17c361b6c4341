# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Real plugins whose ADD, or DEL, goes wrong: an executable that wraps the real one.

It is installed as `bridge`, `host-local`, … in a directory that is searched before /usr/lib/cni. Whether and how a
plugin fails is in its configuration, in a key that the real plugin ignores:
`{"type": "bridge", **goes_wrong("bridge", Fault.HANGS)}`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject

_SCRIPT: Final = Path(__file__).with_name("unreliable.sh")
"""A shell script: the start of another interpreter would slow each plugin down by many milliseconds."""


class Fault(StrEnum):
    """What a plugin's first DEL of each container ID does, or each of its ADDs or DELs."""

    FAILS_BEFORE = "fails before its work"
    FAILS_AFTER = "fails after its work"
    HANGS = "hangs"
    """It hangs before its work, until it is killed."""
    SLOW_ADD = "is slow in ADD"
    """It waits for 1.5 seconds before its work."""
    SLOW_DEL = "is slow in DEL"
    """Each DEL waits for four seconds before its work."""
    HANGS_IN_ADD = "hangs in ADD"
    """It hangs before its work, until it is killed."""


def goes_wrong(plugin: str, fault: Fault) -> JsonObject:
    """Return the key that makes a plugin fail, for its configuration or, for an IPAM plugin, that of its caller."""
    return {"unreliable": f"{plugin} {fault}"}


def render_unreliable(real: Path, seen: Path) -> str:
    """Return the executable's text.

    Args:
        real: The directory of the real plugins.
        seen: The directory in which it records the container IDs whose DEL has failed; it need not exist.
    """
    text = _SCRIPT.read_text(encoding="utf-8")
    return text.replace("@REAL@", str(real)).replace("@SEEN@", str(seen))
