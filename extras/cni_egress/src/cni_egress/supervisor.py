# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What systemd and the journal receive: readiness (sd_notify(3)), and lines with priorities (sd-daemon(3))."""

import logging
import os
import socket
import sys
import time
from contextlib import suppress
from typing import Final

__all__ = ["RateLimit", "configure_logging", "notify"]

_PAUSE_S: Final = 60.0
_PRIORITIES: Final = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


def notify(state: str) -> None:
    """Report a state, such as `READY=1`, to the supervisor of the process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # an abstract socket begins with NUL
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(state.encode(), address)


class RateLimit:
    """Counts messages that a container may cause without end, and lets one a minute into the log."""

    def __init__(self) -> None:
        self._count = 0
        self._quiet_until = 0.0

    def count(self) -> int:
        """Count a message. Return how many there were since the last one that was logged; 0: it is not logged."""
        self._count += 1
        now = time.monotonic()
        if now < self._quiet_until:
            return 0
        count, self._count, self._quiet_until = self._count, 0, now + _PAUSE_S
        return count


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of an entry, each with its priority."""
        lines = super().format(record).splitlines()
        return "\n".join(f"<{_PRIORITIES.get(record.levelno, 3)}>{line}" for line in lines)


def configure_logging(*, verbose: bool) -> None:
    """Log to stderr; with priorities, if that is the journal."""
    handler = logging.StreamHandler(sys.stderr)
    is_journal = "JOURNAL_STREAM" in os.environ
    handler.setFormatter(_Formatter("%(message)s") if is_journal else logging.Formatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
