# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tracks running calls, and how long Docker has been quiet."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LAST: Final = 2
"""Number of endpoints whose last call is remembered: for any endpoint, one of the two belongs to a different one."""


class CallsUnderWay:
    """The calls that have begun and not ended, and the time since the last one."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[str, str | None]] = {}
        self._ended: dict[str | None, float] = {}

    @contextmanager
    def counted(self, call: str, endpoint_id: str | None) -> Iterator[None]:
        """Track a call while the block runs.

        Args:
            call: A description for the log.
            endpoint_id: The endpoint of the call; None for calls about networks.
        """
        token = object()
        self._calls[token] = (call, endpoint_id)
        try:
            yield
        finally:
            del self._calls[token]
            self._ended.pop(endpoint_id, None)
            self._ended[endpoint_id] = time.monotonic()
            if len(self._ended) > _LAST:
                del self._ended[next(iter(self._ended))]

    def quiet_s(self, besides: str) -> float:
        """Return the seconds since the last call, ignoring those for one endpoint; 0 while a call is running."""
        if any(endpoint_id != besides for _, endpoint_id in self._calls.values()):
            return 0.0
        ended = [ended for endpoint_id, ended in self._ended.items() if endpoint_id != besides]
        return time.monotonic() - max(ended, default=-math.inf)

    @property
    def all(self) -> tuple[str, ...]:
        """Descriptions of the running calls."""
        return tuple(call for call, _ in self._calls.values())
