# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Notices a request that Docker would repeat forever."""

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

_COUNT: Final = 8
_WITHIN_S: Final = 2.0
"""A repetition takes some milliseconds; an operator does not make as many networks of one section in this time."""


class RepeatedRequests:
    """Notices that Docker requests the same pool again and again.

    For a network without `--subnet`, libnetwork repeats RequestPool as long as the pool overlaps a route or a name
    server of the host (moby `libnetwork/ipams/remote/remote.go`, RequestPool; before 27 `network.go`,
    requestPoolHelper). An IPAM section has one subnet, so that would never end.

    Args:
        clock: Returns the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[Hashable, deque[float]] = {}

    def is_endless(self, request: Hashable) -> bool:
        """Note a request; return whether it is one of a loop."""
        now = self._clock()
        self._seen = {key: times for key, times in self._seen.items() if now - times[-1] < _WITHIN_S}
        times = self._seen.setdefault(request, deque(maxlen=_COUNT))
        times.append(now)
        if len(times) < _COUNT or now - times[0] > _WITHIN_S:
            return False
        del self._seen[request]
        return True
