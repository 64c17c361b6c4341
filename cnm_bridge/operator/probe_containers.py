# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names of what `cni-bridge test` makes, and which of it was left behind by one that was killed."""

import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MARK: Final = "cni-bridge-test"
_NAME: Final = re.compile(rf"{MARK}-((\d+)-[0-9a-f]{{8}})-[ab]")
_PROGRAMS: Final = (b"cni-bridge", b"cnm_bridge")


def new_names() -> tuple[str, str, str]:
    """Return the names of the two containers and of the image of a test that this process runs."""
    suffix = f"{os.getpid()}-{secrets.token_hex(4)}"
    return f"{MARK}-{suffix}-a", f"{MARK}-{suffix}-b", f"{MARK}:{suffix}"


def image_of(container: str) -> str:
    """Return the image of a test's container."""
    match = _NAME.fullmatch(container)
    return f"{MARK}:{match[1]}" if match else ""


def find_left_behind(containers: Iterable[str]) -> tuple[str, ...]:
    """Return those names, in order, that are of a test whose process has ended."""
    matches = (_NAME.fullmatch(name) for name in sorted(containers))
    return tuple(match[0] for match in matches if match and not _runs(int(match[2])))


def _runs(process: int) -> bool:
    """Return whether a process runs our command; its ID may be another program's by now."""
    try:
        return any(name in Path(f"/proc/{process}/cmdline").read_bytes() for name in _PROGRAMS)
    except OSError:
        return False
