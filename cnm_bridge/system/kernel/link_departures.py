# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Detects that links have left the host namespace: libnetwork moves them into sandboxes without notifying the driver.

Uses one netlink socket in the event loop, open only while a caller waits.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from errno import ENOBUFS
from functools import partial
from typing import Final

from pyroute2.netlink import NETLINK_ROUTE
from pyroute2.netlink.rtnl import RTM_DELLINK, RTMGRP_LINK

from cnm_bridge.system.kernel.host import run_in_thread
from cnm_bridge.system.kernel.netlink.links import find_link
from cnm_bridge.system.kernel.netlink.socket import Netlink, parse_message

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr

_RECEIVE_BYTES: Final = 65536

_AT_ONCE: Final = 4
"""Concurrent threads that look for a link."""


@dataclass(slots=True, kw_only=True)
class LinkDepartures:
    """Waits for links to leave the namespace of the event loop's thread."""

    reply_limit_s: float
    _waiting: dict[asyncio.Future[bool], str] = field(default_factory=dict, init=False)
    _looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
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
