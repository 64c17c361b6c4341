# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The host namespace, and the short-lived threads that start in it: every kernel operation runs in one.

libnetwork moves links from there into sandboxes without notifying the driver. Only a netlink socket in the event loop
tells; it is open while a caller waits.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import ENOBUFS
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from pyroute2.netlink import NETLINK_ROUTE
from pyroute2.netlink.rtnl import RTM_DELLINK, RTMGRP_LINK

from cni_invoker import waiting
from cnm_bridge.core.errors import KernelError, NamespaceMissing
from cnm_bridge.system.kernel.netlink.links import find_link
from cnm_bridge.system.kernel.netlink.socket import Netlink, parse_message
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


_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr

_RECEIVE_BYTES: Final = 65536

_LOOKS_AT_ONCE: Final = 4
"""Concurrent threads that look for a link."""


@dataclass(slots=True, kw_only=True)
class LinkDepartures:
    """Waits for links to leave the namespace of the event loop's thread."""

    reply_limit_s: float
    _waiting: dict[asyncio.Future[bool], str] = field(default_factory=dict, init=False)
    _looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOOKS_AT_ONCE), init=False)
    _socket: socket.socket | None = field(default=None, init=False)

    async def wait(self, name: str) -> None:
        """Wait until no link is called `name`; return immediately if none is.

        Raises:
            OSError: Links cannot be watched.
        """
        has_left = False
        while not has_left:
            departure: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting[departure] = name
            try:
                self._open()
                # in a thread, because the kernel may hold its routing lock for other links
                has_left = not await self._look(name) or await departure
            finally:
                del self._waiting[departure]
                if not self._waiting:
                    self._close()

    async def _look(self, name: str) -> bool:
        async with self._looks:
            return await run_in_thread(partial(self._exists, name))

    def _exists(self, name: str) -> bool:
        with Netlink(reply_limit_s=self.reply_limit_s) as netlink:
            return find_link(netlink, name) is not None

    def _open(self) -> None:
        if self._socket is None:
            opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, NETLINK_ROUTE)
            opened.bind((0, RTMGRP_LINK))
            self._socket = opened
            asyncio.get_running_loop().add_reader(opened, self._read, opened)

    def _close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self, opened: socket.socket) -> None:
        while True:
            try:
                data = opened.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno != ENOBUFS:  # the waiters receive the error
                    self._fail(exc)
                    return
                self._wake(None, has_left=False)  # messages were lost: the waiters must look again
                continue
            self._handle(data)

    def _handle(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            length, kind, *_ = _HEADER.unpack_from(data, start)
            if kind == RTM_DELLINK:
                message = parse_message(kind, data[start + _HEADER.size : start + length])
                self._wake(message.text("IFLA_IFNAME"), has_left=True)
            start += (length + 3) & ~3

    def _wake(self, name: str | None, *, has_left: bool) -> None:
        """Wake the waiters for a link, or all of them if the name is None; if `has_left` is False they look again."""
        for waiter, waited_for in self._waiting.items():
            if name in {None, waited_for} and not waiter.done():
                waiter.set_result(has_left)

    def _fail(self, error: OSError) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)
