# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Work in steps that another task can interrupt."""

import asyncio
from collections.abc import Coroutine, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from cnm_bridge.core.errors import Interrupted

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Work:
    """Work for one key; its long steps go through `step`."""

    def __init__(self) -> None:
        self._interrupted: str | None = None
        self._step: asyncio.Timeout | None = None

    async def step(self, coroutine: Coroutine[object, object, T]) -> T:
        """Run one step and return its result.

        Raises:
            Interrupted: The work was interrupted before or during the step. The step has ended.
        """
        if self._interrupted is not None:
            coroutine.close()
            raise Interrupted(self._interrupted)
        try:
            async with asyncio.timeout(None) as self._step:
                return await coroutine
        except TimeoutError:
            if self._interrupted is None:
                raise
            raise Interrupted(self._interrupted) from None
        finally:
            self._step = None

    def interrupt(self, reason: str) -> None:
        """Cancel the current step and refuse later ones; does not block."""
        if self._interrupted is None:
            self._interrupted = reason
            if self._step is not None:
                self._step.reschedule(asyncio.get_running_loop().time())


class Interruptible(Generic[K]):
    """The running work by key; at most one per key."""

    def __init__(self) -> None:
        self._work: dict[K, Work] = {}

    @contextmanager
    def begin(self, key: K) -> Iterator[Work]:
        """Yield work for `key`, which can be interrupted until the end of the block."""
        work = self._work[key] = Work()
        try:
            yield work
        finally:
            del self._work[key]

    def interrupt(self, key: K, reason: str) -> None:
        """Interrupt the work for `key`, if there is any; does not block."""
        work = self._work.get(key)
        if work is not None:
            work.interrupt(reason)
