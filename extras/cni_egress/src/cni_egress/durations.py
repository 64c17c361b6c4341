# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How long answers took, as a histogram; pure."""

from bisect import bisect_left
from itertools import accumulate
from typing import Final

__all__ = ["BOUNDS_S", "Durations"]

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""The upper bounds of the histogram; above the last one are the longest."""


class Durations:
    """Durations in seconds.

    Attributes:
        sum_s: Their sum.
    """

    def __init__(self) -> None:
        self.sum_s = 0.0
        self._buckets = [0] * (len(BOUNDS_S) + 1)

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self._buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    @property
    def cumulative(self) -> tuple[int, ...]:
        """How many are at most as long as each bound, and how many there are in all."""
        return tuple(accumulate(self._buckets))
