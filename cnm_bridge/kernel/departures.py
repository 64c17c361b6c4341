# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tells when links have left the host namespace: libnetwork takes them into sandboxes without telling.

One netlink socket in the event loop, open only while somebody waits.
"""

import asyncio
import socket
import struct
from errno import ENOBUFS
from typing import Final

from pyroute2.netlink import NETLINK_ROUTE
from pyroute2.netlink.rtnl import RTM_DELLINK, RTMGRP_LINK
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from cnm_bridge.kernel.links import find_link
from cnm_bridge.kernel.message import Message
from cnm_bridge.kernel.netlink import Netlink

__all__ = ["Departures"]

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_RECEIVE_BYTES: Final = 65536


class Departures:
    """Waits for links to leave the namespace of the event loop's thread.

    Args:
        reply_limit_s: How long the kernel may let one netlink reply wait, in seconds.
    """

    def __init__(self, *, reply_limit_s: float) -> None:
        self._reply_limit_s = reply_limit_s
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._socket: socket.socket | None = None

    async def wait(self, name: str) -> None:
        """Wait until there is no link `name`; at once where there is none. One caller at a time for each name.

        Raises:
            OSError: Links cannot be watched.
        """
        self._waiting[name] = departed = asyncio.get_running_loop().create_future()
        try:
            self._open()
            self._check()
            await departed
        finally:
            del self._waiting[name]
            if not self._waiting:
                self._close()

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
                if exc.errno != ENOBUFS:
                    raise
                self._check()  # so much at once that the kernel could not keep it
                continue
            self._take(data)

    def _take(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            length, kind, *_ = _HEADER.unpack_from(data, start)
            if kind == RTM_DELLINK:
                message = Message(MarshalRtnl.msg_map[kind], data[start + _HEADER.size : start + length])
                self._departed(message.text("IFLA_IFNAME") or "")
            start += (length + 3) & ~3

    def _departed(self, name: str) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _check(self) -> None:
        with Netlink(reply_limit_s=self._reply_limit_s) as netlink:
            for name in tuple(self._waiting):
                if find_link(netlink, name) is None:
                    self._departed(name)
