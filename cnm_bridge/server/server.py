# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Serves the plugin socket, and stops without losing calls.

dockerd repeats a lost call with an empty body, which is refused, and the container does not start. So every accepted
connection is answered. Other connections stay in the socket's queue; if systemd owns the socket, the next daemon
accepts them.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.api import CallsUnderWay, Method, make_app
from cnm_bridge.server.listening import accepting, running
from cnm_bridge.system.journal import Journal

log = structlog.get_logger()

_ARRIVAL_S: Final = 1.0
"""Time limit for the requests of open connections at the end; dockerd sends its request when it connects."""
_LOOK_S: Final = 0.01


@asynccontextmanager
async def answering(
    sock: socket.socket,
    methods: Iterable[Method],
    *,
    calls: CallsUnderWay,
    teardowns: TeardownQueue,
    journal: Journal,
    drain_timeout_s: float,
    on_hidden: Callable[[], None],
) -> AsyncIterator[None]:
    """Answer calls on a listening socket; at the end accept no new ones and complete running calls and teardowns.

    Calls and teardowns that take longer than `drain_timeout_s` are logged and cancelled; the next start completes them.
    `on_hidden` is called as by `make_app`.
    """
    async with running(make_app(methods, calls, journal, on_hidden=on_hidden), cancels=False) as server:
        async with accepting(sock, server):
            yield
        with suppress(TimeoutError):
            now = asyncio.get_running_loop().time
            arrived = now() + _ARRIVAL_S
            async with asyncio.timeout(drain_timeout_s):
                # Each answer closes its connection: one that is open has a call under way, or no request yet.
                while calls.all or teardowns.requested_ids or (server.connections and now() < arrived):
                    await teardowns.wait_tried(teardowns.requested_ids)
                    await asyncio.sleep(_LOOK_S)
        if calls.all or teardowns.requested_ids:
            log.warning("daemon.cut_off", calls=calls.all, teardowns=sorted(teardowns.requested_ids))
