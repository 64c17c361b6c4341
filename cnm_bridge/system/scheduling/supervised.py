# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The only place where an error of background work ends that nothing below has handled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from cnm_bridge.system.log import Seldom

log = structlog.get_logger()

_PAUSE_S: Final = 1.0
"""Shorter than systemd waits for a sign of life: feeding its watchdog is such work, too."""


async def supervised(name: str, work: Callable[[], Awaitable[None]], *, again: bool = True) -> None:
    """Run background work; after an error begin it again, as often as necessary, so that it does not end the daemon.

    Args:
        name: Its name, for the log.
        work: Runs it, until it is cancelled or done. What it needs after an error must be kept outside of it.
        again: Whether it begins again after an error; otherwise that is its end.
    """
    errors = Seldom()
    while True:
        try:
            await work()
        except Exception:  # a bug in one work must not end the others, and with them the daemon
            if count := errors.count():
                log.exception("background.bug", work=name, count=count)
            if not again:
                return
        else:
            return
        await asyncio.sleep(_PAUSE_S)
