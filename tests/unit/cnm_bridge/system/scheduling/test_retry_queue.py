# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each key is retried until it succeeds, independently of the others."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from cnm_bridge.system.scheduling.retry_queue import RetryQueue

NAMES = [str(number) for number in range(1000)]


@asynccontextmanager
async def running(attempt: Callable[[str], Awaitable[bool]], pause_s: float = 0.001) -> AsyncIterator[RetryQueue[str]]:
    """Run a queue with short pauses."""
    retries: RetryQueue[str] = RetryQueue(attempt, first_pause_s=pause_s, longest_pause_s=4 * pause_s)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(retries.run())
        yield retries
        task.cancel()


async def test_a_key_is_retried_until_it_succeeds() -> None:
    """An attempt that returns False or raises is repeated; one that returns True is the last."""
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
        retries.add("a")
        await retries.wait_done("a")
        assert attempts == 4
        await retries.wait_done("a")
        await retries.wait_tried(["a"])


async def test_a_hanging_attempt_does_not_hold_up_other_keys() -> None:
    """Each key has its own task; `wait_tried` returns when the first attempts of all keys have ended."""
    hanging = asyncio.Event()

    async def attempt(key: str) -> bool:
        if key == "slow":
            await hanging.wait()
        return key != "failing"

    async with running(attempt) as retries:
        for key in ("slow", "failing", "quick"):
            retries.add(key)
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


async def test_a_key_is_not_attempted_twice_at_once() -> None:
    """A second `add` during an attempt changes nothing."""
    attempts: list[str] = []
    proceed = asyncio.Event()

    async def attempt(key: str) -> bool:
        attempts.append(key)
        await proceed.wait()
        return True

    async with running(attempt) as retries:
        retries.add("a")
        retries.add("a")
        proceed.set()
        await retries.wait_done("a")
        retries.add("b")
        await retries.wait_done("b")
    assert attempts == ["a", "b"]


async def test_add_skips_the_pause() -> None:
    """A key that failed is retried immediately, however much of its pause is left."""
    attempts = 0

    async def attempt(key: str) -> bool:  # noqa: ARG001
        nonlocal attempts
        attempts += 1
        return attempts == 3

    async with running(attempt, pause_s=3600) as retries:
        retries.add("a")
        await retries.wait_tried(["a"])
        assert retries.attempts == {"a": 1}
        retries.add("a")
        while retries.attempts == {"a": 1}:  # noqa: ASYNC110 - no event reports the attempt
            await asyncio.sleep(0.001)
        retries.add("a")
        await retries.wait_done("a")
    assert attempts == 3


async def test_wait_tried_waits_for_the_given_keys_only() -> None:
    """A hanging attempt of another key does not hold it up, and unknown keys are ignored."""
    hanging = asyncio.Event()

    async def attempt(key: str) -> bool:
        if key == "hangs":
            await hanging.wait()
        return key != "fails"

    async with running(attempt) as retries:
        for key in ("hangs", "fails", "works"):
            retries.add(key)
        await retries.wait_tried(["fails", "works", "unknown"])
        assert retries.attempts.keys() == {"hangs", "fails"}
        hanging.set()
        await retries.wait_tried(["hangs"])
        assert retries.attempts.keys() == {"fails"}


@pytest.mark.parametrize(("urgent", "begun_at_once"), [(["900"], ["900"]), (NAMES[500:], NAMES[500:564])])
async def test_a_limited_number_of_keys_begins_at_once(urgent: list[str], begun_at_once: list[str]) -> None:
    """Of the later keys and of the urgent ones; neither urgent nor new keys wait for those that began before."""
    begun: list[str] = []
    may_end = asyncio.Event()

    async def attempt(key: str) -> bool:
        begun.append(key)
        await may_end.wait()
        return True

    async with running(attempt) as retries:
        for name in NAMES:
            retries.add_later(name)
        assert retries.attempts == dict.fromkeys(NAMES, 0)
        retries.begin(urgent)
        retries.add("new")
        while "new" not in begun:  # noqa: ASYNC110 - it takes some iterations of the loop
            await asyncio.sleep(0)
        assert begun == [*NAMES[:64], *begun_at_once, "new"]
        may_end.set()
        await retries.wait_tried(NAMES)
    assert sorted(begun) == sorted([*NAMES, "new"])


async def test_adding_a_later_key_again_begins_it() -> None:
    """A key that was to come later is urgent when it is added once more."""
    begun: list[str] = []

    async def attempt(key: str) -> bool:
        begun.append(key)
        return True

    async with running(attempt) as retries:
        for name in NAMES:
            retries.add_later(name)
        retries.add("901")
        await retries.wait_done("901")
        assert begun.index("901") <= 64
        await retries.wait_tried(NAMES)


async def test_later_keys_take_little_memory() -> None:
    """After a reboot there may be ten thousand; three events for each would take twenty megabytes."""

    async def attempt(key: str) -> bool:
        raise AssertionError(key)

    retries: RetryQueue[str] = RetryQueue(attempt, first_pause_s=1, longest_pause_s=1)
    keys = [str(number) for number in range(1000)]
    tracemalloc.start()
    try:
        for key in keys:
            retries.add_later(key)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / len(keys) < 700


async def test_wait_tried_returns_after_an_earlier_attempt() -> None:
    """A wait that begins after the attempt returns at once, one that began before returns with it."""

    async def attempt(_: str) -> bool:
        return False

    async with running(attempt, pause_s=60) as retries:
        retries.add("a")
        await retries.wait_tried(["a"])
        await retries.wait_tried(["a"])
        assert retries.attempts == {"a": 1}


async def test_a_bug_in_the_callback_does_not_cancel_other_attempts() -> None:
    """It is logged; the key itself is tried again, and the attempt of another one goes on."""
    errors = [ZeroDivisionError("a bug")]
    begun: list[str] = []
    may_end = asyncio.Event()

    async def attempt(key: str) -> bool:
        begun.append(key)
        if key == "long":
            await may_end.wait()
        return not errors

    def on_attempt() -> None:
        if errors:
            raise errors.pop()

    retries: RetryQueue[str] = RetryQueue(attempt, first_pause_s=0.001, longest_pause_s=0.001, on_attempt=on_attempt)
    retries.add("long")
    retries.add("short")
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(retries.run())
        await retries.wait_done("short")
        may_end.set()
        await retries.wait_done("long")
        task.cancel()
    assert begun == ["long", "short", "short"]


async def test_a_queue_that_is_run_again_continues_with_all_keys() -> None:
    """After it was cancelled: those in an attempt, those in a pause, and those that have not begun."""
    tried: set[str] = set()
    is_first_run = True

    async def attempt(key: str) -> bool:
        tried.add(key)
        if is_first_run and key == "a":
            await asyncio.Event().wait()
        return not is_first_run

    retries: RetryQueue[str] = RetryQueue(attempt, first_pause_s=0.001, longest_pause_s=0.001)
    for key in ("a", "b"):
        retries.add(key)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(retries.run())
        await retries.wait_tried(["b"])
        task.cancel()
    retries.add("c")
    is_first_run = False
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(retries.run())
        for key in ("a", "b", "c"):
            await retries.wait_done(key)
        task.cancel()
    assert tried == {"a", "b", "c"}
    assert retries.attempts == {}
