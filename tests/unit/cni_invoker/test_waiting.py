# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Short-lived threads: each does one piece of work."""

import asyncio
import threading
from queue import SimpleQueue

import pytest

from cni_invoker import waiting
from cni_invoker.waiting import run_in_thread


async def test_work_runs_in_its_own_thread() -> None:
    """The call returns the work's value."""
    threads = [await run_in_thread(threading.get_native_id) for _ in range(2)]
    assert len({*threads, threading.get_native_id()}) == 3


async def test_the_event_loop_does_not_wait_for_the_end_of_a_thread() -> None:
    """The call returns when the work has ended, although its thread still runs."""
    returned = threading.Event()
    outcomes: SimpleQueue[bool] = SimpleQueue()
    of_thread = threading.local()

    class DeletedWithThread:
        def __del__(self) -> None:
            outcomes.put(returned.wait(timeout=10.0))

    def work() -> None:
        of_thread.value = DeletedWithThread()

    await run_in_thread(work)
    returned.set()
    assert outcomes.get(timeout=10.0)


async def test_the_event_loop_is_not_blocked() -> None:
    """Tasks run while the work waits."""
    released = threading.Event()
    async with asyncio.TaskGroup() as group:
        work = group.create_task(run_in_thread(lambda: released.wait(timeout=10.0)))
        await asyncio.sleep(0)
        assert not work.done()
        released.set()
    assert work.result()


async def test_an_error_of_the_work_is_raised() -> None:
    """The call raises the same exception object."""
    error = KeyError("eth0")

    def work() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await run_in_thread(work)
    assert caught.value is error


async def test_a_process_without_a_free_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work does not begin."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(waiting, "start_new_thread", refuse)
    with pytest.raises(BlockingIOError, match="no further thread"):
        await run_in_thread(threading.get_native_id)


async def test_a_cancelled_call_waits_for_the_work() -> None:
    """However often it is cancelled, the work has ended when the task has."""
    begun, released = threading.Event(), threading.Event()
    ended = False

    def work() -> None:
        nonlocal ended
        begun.set()
        assert released.wait(timeout=10.0)
        ended = True

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_in_thread(work))
        await asyncio.sleep(0)
        assert begun.wait(timeout=10.0)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        released.set()
    assert task.cancelled()
    assert ended


async def test_a_cancelled_call_keeps_the_error_of_its_work() -> None:
    """The call raises CancelledError; the error is its cause."""
    released = threading.Event()

    def work() -> None:
        assert released.wait(timeout=10.0)
        raise KeyError("eth0")

    async def call() -> None:
        with pytest.raises(asyncio.CancelledError) as caught:
            await run_in_thread(work)
        assert isinstance(caught.value.__cause__, KeyError)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(call())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        released.set()


async def test_a_timeout_is_raised_when_the_work_has_ended() -> None:
    """It is raised late, but no work continues after it."""
    released = threading.Event()
    asyncio.get_running_loop().call_later(0.05, released.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await run_in_thread(lambda: released.wait(timeout=10.0))
    assert released.is_set()
