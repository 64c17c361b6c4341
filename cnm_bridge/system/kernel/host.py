# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The host namespace, and the short-lived threads that start in it: every kernel operation runs in one."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from cni_invoker import waiting
from cnm_bridge.core.errors import KernelError, NamespaceMissing
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.netns import current_namespace, enter, namespace_id, open_namespace

PROCESSES: Final = Path("/proc")

WATCHES_AT_ONCE: Final = 8
"""Additional threads that watch sandboxes. Syncs of the previous run's endpoints should leave some of them free."""

_AT_ONCE: Final = 8
"""Concurrent threads; each has up to four descriptors open."""

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], *, stop: Callable[[], None] = lambda: None) -> T:
    """Run `work` as `cni_invoker.waiting.run_in_thread` does; raise `KernelError` if no thread can be started."""
    try:
        return await waiting.run_in_thread(work, stop=stop)
    except BlockingIOError as exc:
        raise KernelError("start", "a thread", str(exc.strerror), exc.errno) from exc


class Host:
    """The host namespace, which is that of the thread that creates this object.

    `reply_limit_s` is the time limit of one netlink reply, `processes` a directory like `/proc`.
    """

    def __init__(self, *, reply_limit_s: float, processes: Path = PROCESSES) -> None:
        self.reply_limit_s = reply_limit_s
        self.processes = processes
        with current_namespace() as fd:
            self.id = namespace_id(fd)
        self._threads = asyncio.Semaphore(_AT_ONCE)
        self._watches = asyncio.Semaphore(WATCHES_AT_ONCE)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of its own, at most `_AT_ONCE` at a time; errors as in `run_in_thread`.

        When `CancelledError` is raised, the work has ended.
        """
        async with self._threads:
            return await run_in_thread(work)

    async def watch(self, work: Callable[[int], T]) -> T:
        """Run `work` in a further thread. It may take long, and must end when its argument is readable.

        That is a descriptor; a cancellation makes it readable. Errors as in `run_in_thread`.
        """
        stop_fd = os.eventfd(0)
        try:
            async with self._watches:
                return await run_in_thread(partial(work, stop_fd), stop=partial(os.eventfd_write, stop_fd, 1))
        finally:
            os.close(stop_fd)

    def enter(self, fd: int) -> None:
        """Move the calling thread into an open namespace; errors as in the function `enter`."""
        enter(fd, host=self.id)

    def netlink(self) -> Netlink:
        """Open a netlink socket in the namespace of the calling thread."""
        return Netlink(reply_limit_s=self.reply_limit_s)

    @contextmanager
    def inside(self, path: Path) -> Iterator[Netlink]:
        """Move the calling thread into the namespace mounted at `path`, and yield a netlink socket there.

        Errors as in `open_namespace` and `enter`.
        """
        with open_namespace(path) as fd:
            self.enter(fd)
            with self.netlink() as netlink:
                yield netlink

    @contextmanager
    def inside_sandbox(self, path: Path) -> Iterator[Netlink | None]:
        """Like `inside`, but yield None without a namespace, or if it is the host's, which a container may use."""
        try:
            with open_namespace(path) as fd:
                is_sandbox = namespace_id(fd) != self.id
                if is_sandbox:
                    self.enter(fd)
        except NamespaceMissing:
            is_sandbox = False
        if not is_sandbox:
            yield None
            return
        with self.netlink() as netlink:
            yield netlink


class _HasHost(Protocol):
    @property
    def host(self) -> Host: ...


S = TypeVar("S", bound=_HasHost)


def in_thread(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a method a coroutine that runs completely in one thread of its object's host, see `Host.run`."""

    @wraps(method)
    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.host.run(partial(method, self, *args, **kwargs))

    return run
