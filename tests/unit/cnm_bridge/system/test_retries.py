# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Work is attempted until it completes; each change wakes those that wait for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cnm_bridge.system.retries import Retries, Retry


class Work(Retries[str, Retry[str]]):
    """Work that succeeds when it is allowed to.

    Attributes:
        begun: How many attempts of each key have begun.
        allowed: The keys that succeed.
    """

    first_pause_s = 0.01
    longest_pause_s = 0.04

    def __init__(self) -> None:
        super().__init__(lambda key: Retry(key=key))
        self.begun: Counter[str] = Counter()
        self.allowed: set[str] = set()

    async def attempt(self, one: Retry[str]) -> bool:
        """Make one attempt."""
        self.begun[one.key] += 1
        await asyncio.sleep(0)
        if one.key == "bug" and one.key not in self.allowed:
            raise ZeroDivisionError("a bug")
        return one.key in self.allowed

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it during the block."""
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.run(self.attempt))
            yield
            running.cancel()


def test_one_record_for_each_key() -> None:
    """It is the same until it is removed; later work for the same key begins anew."""
    work = Work()
    first = work.add("a")
    assert work.add("a") is first
    assert work.find(["b", "a"]) == (first,)
    work.remove(first)
    work.remove(first)
    assert first.is_done
    assert not work.all
    assert work.add("a") is not first


async def test_each_is_attempted_until_it_completes() -> None:
    """Neither work that fails nor work with a bug delays other work."""
    work = Work()
    bug, fails = work.add("bug"), work.add("fails")
    work.allowed.add("good")
    async with work.running():
        good = work.add("good")
        await work.wait_until(lambda: good.is_done)
        await work.wait_until(lambda: min(bug.attempts, fails.attempts) > 3)
        assert "a bug" in str(bug.error)
        assert work.all.keys() == {"bug", "fails"}
        work.allowed |= {"bug", "fails"}
        await work.wait_until_each([bug, fails], lambda one: one.is_done)
    assert not work.all


async def test_a_wake_ends_the_pause() -> None:
    """The next attempt begins at once, and the next pause is short again."""
    work = Work()
    work.first_pause_s = 3600.0
    one = work.add("one")
    async with work.running():
        await work.wait_attempted([one])
        assert work.begun["one"] == 1
        one.wake.set()
        await work.wait_attempted([one])
        assert work.begun["one"] == 2
        work.allowed.add("one")
        one.wake.set()
        await work.wait_until(lambda: one.is_done)


async def test_work_that_is_run_again() -> None:
    """After an error of the daemon it continues with all that is pending, once each."""
    work = Work()
    work.first_pause_s = 3600.0
    first = work.add("first")
    async with work.running():
        await work.wait_attempted([first])
    second = work.add("second")
    async with work.running():
        await work.wait_attempted([first, second])
    assert work.begun == {"first": 2, "second": 1}


async def test_each_is_waited_for_once() -> None:
    """One that is tried again meanwhile does not prolong the wait; `or_until` ends it."""
    work = Work()
    first, second = map(work.add, ("a", "b"))
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        wait = tasks.create_task(work.wait_until_each((first, second), lambda one: one.attempts == 1))
        second.attempts = 1
        await asyncio.sleep(0)
        work.announce()
        await asyncio.sleep(0)
        second.attempts = 2
        assert not wait.done()
        first.attempts = 1
        work.announce()
    async with asyncio.timeout(5):
        await work.wait_attempted([first], or_until=lambda: True)
