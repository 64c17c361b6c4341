# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What becomes of processes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 30.0


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that must come true."""
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False
