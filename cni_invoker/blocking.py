# SPDX-License-Identifier: Apache-2.0
"""Runs the asynchronous runtime for programs without asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cni_invoker.waiting import has_running_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

__all__ = ["as_async", "awaited", "run_blocking"]

T = TypeVar("T")
U = TypeVar("U")


def run_blocking(work: Callable[[], Coroutine[None, None, T]], *, needs_loop: bool = False) -> T:
    """Run `work` in this thread; in another one if an event loop runs in this one.

    Args:
        work: Returns the coroutine.
        needs_loop: It awaits what is not of this package; without it, no event loop is made (module `waiting`).
    """
    run = _run_in_loop if needs_loop else _run_here
    if not has_running_loop():
        return run(work)
    import contextvars  # noqa: PLC0415
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:  # a thread has one running loop at most
        return pool.submit(lambda: context.run(run, work)).result()


def _run_here(work: Callable[[], Coroutine[None, None, T]]) -> T:
    coroutine = work()
    try:
        coroutine.send(None)
    except StopIteration as exc:
        value: T = exc.value
        return value
    coroutine.close()
    raise RuntimeError("an operation has awaited what needs an event loop")


def _run_in_loop(work: Callable[[], Coroutine[None, None, T]]) -> T:
    import asyncio  # noqa: PLC0415

    return asyncio.run(work())


async def awaited(work: Awaitable[T]) -> T:
    """Return the outcome of `work`, as a coroutine."""
    return await work


def as_async(callback: Callable[[U], object] | None, what: str) -> Callable[[U], Awaitable[None]] | None:
    """Return a callback as the asynchronous runtime needs it.

    Raises:
        TypeError: It is asynchronous: it would not be awaited, so nothing would be stored.
    """
    if callback is None:
        return None
    from inspect import isawaitable, iscoroutinefunction  # noqa: PLC0415

    refused = f"{what} must not be asynchronous; cni_invoker.Runtime awaits it"
    if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
        raise TypeError(refused)

    async def call(value: U) -> None:
        if isawaitable(returned := callback(value)):
            if hasattr(returned, "close"):
                returned.close()
            raise TypeError(refused)

    return call
