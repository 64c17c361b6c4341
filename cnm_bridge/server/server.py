# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Serves the plugin socket, and stops without losing calls.

dockerd repeats a lost call with an empty body, which is refused, and the container does not start. So every accepted
connection is answered. Other connections stay in the socket's queue; if systemd owns the socket, the next daemon
accepts them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.acceptor import accepting, running
from cnm_bridge.server.api import CallsUnderWay, Method, make_app
from cnm_bridge.server.pending_connections import PendingConnections
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.sockets import Listener

log = structlog.get_logger()

_ARRIVAL_S: Final = 1.0
"""Time limit for the requests of open connections at the end; dockerd sends its request when it connects."""


@asynccontextmanager
async def answering(
    listeners: Sequence[Listener],
    methods: Iterable[Method],
    *,
    calls: CallsUnderWay,
    connections: PendingConnections,
    teardowns: TeardownQueue,
    journal: Journal,
    drain_timeout_s: float,
) -> AsyncIterator[None]:
    """Answer calls on listening sockets; at the end accept no new ones and complete running calls and teardowns.

    Calls and teardowns that take longer than `drain_timeout_s` are logged and cancelled; the next start completes them.
    """
    async with running(make_app(methods, calls, connections, journal), cancels=False) as server:
        async with accepting(listeners, lambda one: connections.guarded(server, one)):
            yield
        with suppress(TimeoutError):
            async with asyncio.timeout(_ARRIVAL_S):
                await connections.wait_arrived()
        with suppress(TimeoutError):
            async with asyncio.timeout(drain_timeout_s):
                while calls.all or teardowns.requested_ids:  # a call may arrive meanwhile and begin a teardown
                    await calls.wait_none()
                    await teardowns.wait_tried(teardowns.requested_ids)
        if calls.all or teardowns.requested_ids:
            log.warning("daemon.cut_off", calls=calls.all, teardowns=sorted(teardowns.requested_ids))
