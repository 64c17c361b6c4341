# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What does not succeed at once is tried again, each thing by itself, until it does."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cnm_bridge.scheduling.retry_queue import RetryQueue


@asynccontextmanager
async def running(attempt: Callable[[str], Awaitable[bool]], pause_s: float = 0.001) -> AsyncIterator[RetryQueue[str]]:
    """Run retries with short pauses."""
    retries: RetryQueue[str] = RetryQueue(attempt, first_pause_s=pause_s, longest_pause_s=4 * pause_s)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(retries.run())
        yield retries
        task.cancel()


async def test_until_it_succeeds() -> None:
    """An attempt that is not done, and one that raises, is followed by another; one that is done, by none."""
    outcomes: list[bool | Exception] = [False, ZeroDivisionError("a bug"), False, True]
    attempts = 0

    async def attempt(key: str) -> bool:
        nonlocal attempts
        assert key == "a"
        outcome = outcomes[attempts]
        attempts += 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with running(attempt) as retries:
        retries.want("a")
        await retries.wait_done("a")
        assert attempts == 4
        await retries.wait_done("a")
        await retries.wait_tried(["a"])


async def test_one_that_hangs_keeps_no_other() -> None:
    """Each key has a task of its own; waiting for the first attempts ends when all have had theirs."""
    hanging = asyncio.Event()

    async def attempt(key: str) -> bool:
        if key == "slow":
            await hanging.wait()
        return key != "failing"

    async with running(attempt) as retries:
        for key in ("slow", "failing", "quick"):
            retries.want(key)
        await retries.wait_done("quick")
        tried = asyncio.timeout(0.05)
        try:
            async with tried:
                await retries.wait_tried(["slow", "failing", "quick"])
        except TimeoutError:
            pass
        assert tried.expired()
        hanging.set()
        await retries.wait_tried(["slow", "failing", "quick"])


async def test_a_key_under_way_is_not_doubled() -> None:
    """Wanting the same twice is wanting it once."""
    attempts = 0
    go_on = asyncio.Event()

    async def attempt(key: str) -> bool:  # noqa: ARG001
        nonlocal attempts
        attempts += 1
        await go_on.wait()
        return True

    async with running(attempt) as retries:
        retries.want("a")
        retries.want("a")
        go_on.set()
        await retries.wait_done("a")
        await asyncio.sleep(0.01)
    assert attempts == 1


async def test_wanted_once_more() -> None:
    """What has failed is tried again at once, however long its pause is yet."""
    attempts = 0

    async def attempt(key: str) -> bool:  # noqa: ARG001
        nonlocal attempts
        attempts += 1
        return attempts == 3

    async with running(attempt, pause_s=3600) as retries:
        retries.want("a")
        await retries.wait_tried(["a"])
        assert retries.attempts == {"a": 1}
        retries.want("a")
        while retries.attempts == {"a": 1}:  # noqa: ASYNC110 - the attempt itself tells nobody
            await asyncio.sleep(0.001)
        retries.want("a")
        await retries.wait_done("a")
    assert attempts == 3


async def test_some_of_them_are_waited_for() -> None:
    """One that hangs keeps nobody waiting who did not ask for it; one that is not wanted is not waited for either."""
    hanging = asyncio.Event()

    async def attempt(key: str) -> bool:
        if key == "hangs":
            await hanging.wait()
        return key != "fails"

    async with running(attempt) as retries:
        for key in ("hangs", "fails", "works"):
            retries.want(key)
        await retries.wait_tried(["fails", "works", "unknown"])
        assert retries.attempts.keys() == {"hangs", "fails"}
        hanging.set()
        await retries.wait_tried(["hangs"])
        assert retries.attempts.keys() == {"fails"}


async def test_of_very_many_a_few_are_begun_at_once() -> None:
    """The others follow one by one; those that somebody waits for are begun before their turn, and so are new ones."""
    begun: list[str] = []
    may_end = asyncio.Event()

    async def attempt(key: str) -> bool:
        begun.append(key)
        await may_end.wait()
        return True

    names = [str(number) for number in range(1000)]
    async with running(attempt) as retries:
        for name in names:
            retries.want_later(name)
        assert retries.attempts == dict.fromkeys(names, 0)
        retries.begin(["900"])
        retries.want("901")
        retries.want("new")
        while "new" not in begun:  # noqa: ASYNC110 - it is a matter of turns of the event loop
            await asyncio.sleep(0)
        assert begun == [*names[:64], "900", "901", "new"]
        may_end.set()
        await retries.wait_tried(names)
    assert sorted(begun) == sorted([*names, "new"])


async def test_of_very_many_urgent_keys_a_few_are_begun_at_once() -> None:
    """They do not wait for those that were begun before, and a thousand of them are not begun in one turn."""
    begun: list[str] = []
    may_end = asyncio.Event()

    async def attempt(key: str) -> bool:
        begun.append(key)
        await may_end.wait()
        return True

    names = [str(number) for number in range(1000)]
    async with running(attempt) as retries:
        for name in names:
            retries.want_later(name)
        retries.begin(names[500:])
        retries.want("new")
        while "new" not in begun:  # noqa: ASYNC110 - it is a matter of turns of the event loop
            await asyncio.sleep(0)
        assert begun == [*names[:64], *names[500:564], "new"]
        may_end.set()
        await retries.wait_tried(names)
    assert sorted(begun) == sorted([*names, "new"])


async def test_keys_that_come_later_take_little_memory() -> None:
    """There may be ten thousand after a reboot; three events for each would be twenty megabytes."""

    async def attempt(key: str) -> bool:
        raise AssertionError(key)

    retries: RetryQueue[str] = RetryQueue(attempt, first_pause_s=1, longest_pause_s=1)
    keys = [str(number) for number in range(1000)]
    tracemalloc.start()
    try:
        for key in keys:
            retries.want_later(key)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(keys) < 700


async def test_what_was_tried_before_is_not_waited_for() -> None:
    """A wait that begins after the attempt ends at once, and one that began before ends with it."""

    async def attempt(_: str) -> bool:
        return False

    async with running(attempt, pause_s=60) as retries:
        retries.want("a")
        await retries.wait_tried(["a"])
        await retries.wait_tried(["a"])
        assert retries.attempts == {"a": 1}
