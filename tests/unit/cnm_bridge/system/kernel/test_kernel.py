# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Kernel queries for many endpoints use few threads, and so few descriptors; one without a thread is an error."""

import asyncio
import threading
from collections.abc import Collection, Iterator
from typing import Final

import pytest

from cni_invoker import waiting
from cnm_bridge.core.errors import KernelError
from cnm_bridge.system.kernel import Kernel

FEW: Final = 8
MANY: Final = 100


class Slow(Collection[str]):
    """Sandbox paths whose iteration blocks until the limit of threads is reached."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self._full = threading.Event()

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            if self._now >= FEW:
                self._full.set()
        assert self._full.wait(30)
        yield "/nowhere/at/all"
        with self._lock:
            self._now -= 1

    def __len__(self) -> int:
        return 1

    def __contains__(self, item: object) -> bool:
        return item == "/nowhere/at/all"


async def test_concurrent_queries_use_few_threads() -> None:
    """The number of threads does not depend on the number of queries."""
    kernel, paths = Kernel(reply_limit_s=5), Slow()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for _ in range(MANY):
            tasks.create_task(kernel.gone_sandboxes(paths))
    assert paths.most == FEW


async def test_a_process_without_a_free_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker receives the reason, not an internal error."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(waiting, "start_new_thread", refuse)
    with pytest.raises(KernelError, match="cannot start a thread: no further thread can be started"):
        await Kernel(reply_limit_s=5.0).gone_sandboxes([])
