# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Feeds systemd's watchdog from the event loop (sd_watchdog_enabled(3)).

Apart from `systemd.py`, which is imported before the socket is open, when asyncio is not.
"""

import asyncio
from collections.abc import Callable
from typing import Final

_FEEDINGS: Final = 3
"""How often the watchdog is fed within its time limit."""


async def feed_watchdog(notify: Callable[[str], None], limit_s: float | None) -> None:
    """Tell systemd, until cancelled, that the event loop turns; return at once without a watchdog.

    If the loop stops turning for the time limit, systemd kills the daemon and starts it again.
    """
    while limit_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(limit_s / _FEEDINGS)
