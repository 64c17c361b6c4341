# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What strangers can cause any number of times is one line of the log a minute."""

import time
from typing import Final

__all__ = ["Seldom"]

_EVERY_S: Final = 60.0


class Seldom:
    """Counts events of one kind, and decides when they are logged."""

    def __init__(self) -> None:
        self._count = 0
        self._quiet_until = 0.0

    def count(self) -> int:
        """Count an event. Return how many there were since the last one that was logged, or 0 if it is too soon."""
        self._count += 1
        if time.monotonic() < self._quiet_until:
            return 0
        count, self._count = self._count, 0
        self._quiet_until = time.monotonic() + _EVERY_S
        return count
