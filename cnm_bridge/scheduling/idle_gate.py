# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Puts off what can wait until Docker is quiet.

Of several containers that start and end at once, the last ones would else wait for the plugins of those that have
ended: they use the machine to the full. Where containers come one after the other it is best done at once: a plugin is
done sooner while Docker removes the one container than while it starts the next.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Final, Generic, TypeVar

__all__ = ["IdleGate"]

K = TypeVar("K", bound=Hashable)

_LULL_S: Final = 0.1
"""How long Docker must have been quiet. Its calls for a container that starts are closer together."""
_LONGEST_S: Final = 2.0
"""How long anything is put off. A host that is never quiet must not hoard addresses."""


class IdleGate(Generic[K]):
    """Knows what is put off, and when it is to begin.

    Args:
        quiet_s: Tells for how many seconds Docker has not wanted anything else than what a key is about.
    """

    def __init__(self, quiet_s: Callable[[K], float]) -> None:
        self._quiet_s = quiet_s
        self._put_off: dict[K, asyncio.Event] = {}

    def __contains__(self, key: K) -> bool:
        """Return whether something was put off and is not forgotten, though it may have begun."""
        return key in self._put_off

    def add(self, key: K) -> None:
        """Put something off, from the time that it is waited for."""
        self._put_off.setdefault(key, asyncio.Event())

    def forget(self, key: K) -> None:
        """Put something off no more; the next time it begins at once."""
        self._put_off.pop(key, None)

    def hurry(self, keys: Iterable[K]) -> None:
        """Have some things begin now, because somebody waits for them; what is not put off is ignored."""
        for key in keys:
            if key in self._put_off:
                self._put_off[key].set()

    async def wait(self, key: K) -> None:
        """Wait until it is time: when Docker is quiet, or somebody waits, or it has been long enough; at once else."""
        somebody_waits = self._put_off.get(key)
        if somebody_waits is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_S):
                while not somebody_waits.is_set() and (rest_s := _LULL_S - self._quiet_s(key)) > 0:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(rest_s):
                            await somebody_waits.wait()
