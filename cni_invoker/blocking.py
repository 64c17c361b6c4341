# SPDX-License-Identifier: Apache-2.0
"""Asynchronous work for programs without asyncio; it is loaded when the first work begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

__all__ = ["as_async", "awaited", "refuse_running_loop", "run_blocking"]

T = TypeVar("T")
U = TypeVar("U")


def run_blocking(work: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run `work` in an event loop of its own."""
    import asyncio  # noqa: PLC0415

    if not _has_running_loop():
        return asyncio.run(work())
    import contextvars  # noqa: PLC0415
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    # A thread has one running loop at most.
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: context.run(lambda: asyncio.run(work()))).result()


def refuse_running_loop() -> None:
    """Raise `RuntimeError` if an event loop runs in this thread."""
    if _has_running_loop():
        raise RuntimeError("an event loop runs in this thread; use the asynchronous runtime, or another thread")


async def awaited(work: Awaitable[T]) -> T:
    """Return the outcome of `work`, as a coroutine."""
    return await work


def _has_running_loop() -> bool:
    import asyncio  # noqa: PLC0415

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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
