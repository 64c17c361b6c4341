# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Defers work until Docker is quiet.

When many containers start and end at the same time, the plugins of ended containers would compete for the CPU with
those of starting ones. When containers run one after another, the work is best done immediately: plugins run faster
while Docker removes one container than while it starts the next.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Final, Generic, TypeVar

__all__ = ["IdleGate"]

K = TypeVar("K", bound=Hashable)

_QUIET_S: Final = 0.1
"""How long Docker must have been quiet. Its calls for one starting container are closer together than this."""
_LONGEST_S: Final = 2.0
"""The longest deferral. A host that is never quiet must still release addresses."""


class IdleGate(Generic[K]):
    """Holds back deferred work until Docker is quiet, a caller needs it, or `_LONGEST_S` has passed.

    Args:
        quiet_s: Returns the seconds since Docker's last call that was not about the given key.
    """

    def __init__(self, quiet_s: Callable[[K], float]) -> None:
        self._quiet_s = quiet_s
        self._deferred: dict[K, asyncio.Event] = {}

    def __contains__(self, key: K) -> bool:
        """Return whether work for a key is deferred; it may have begun."""
        return key in self._deferred

    def add(self, key: K) -> None:
        """Defer the work for a key; the time limit starts with `wait`."""
        self._deferred.setdefault(key, asyncio.Event())

    def forget(self, key: K) -> None:
        """End the deferral: the next `wait` for the key returns immediately."""
        self._deferred.pop(key, None)

    def expedite(self, keys: Iterable[K]) -> None:
        """Let deferred work for these keys begin now, because a caller needs it; other keys are ignored."""
        for key in keys:
            if key in self._deferred:
                self._deferred[key].set()

    async def wait(self, key: K) -> None:
        """Wait until the work for a key may begin; return immediately if it is not deferred."""
        is_needed = self._deferred.get(key)
        if is_needed is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_S):
                while not is_needed.is_set() and (rest_s := _QUIET_S - self._quiet_s(key)) > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(rest_s):
                            await is_needed.wait()
