# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A text stream that never blocks: one thread writes its entries to a file descriptor.

stderr may block for as long as no one reads it: a full pipe, a hung journald. No call of Docker waits for that.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_WAITING_BYTES: Final = 1 << 20
"""How much waits for a slow reader: some 4000 lines."""


class LogWriter:
    """Writes each entry as a whole, in order; drops it if too much waits already, or if it cannot be written.

    It has of `typing.TextIO` what loggers call. Its thread does not keep the process from ending.

    Attributes:
        dropped: Number of dropped entries.
    """

    def __init__(self, descriptor: int, on_dropped: Callable[[int], None]) -> None:
        """Start the thread.

        Args:
            descriptor: Where to write; it stays open.
            on_dropped: Called in the thread when writing works again, with the number of entries that were dropped
                meanwhile; what it writes here is never dropped.
        """
        self.dropped = 0
        self._descriptor = descriptor
        self._on_dropped = on_dropped
        self._entries: deque[bytes] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Have an entry written; its line break is included."""
        entry = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._bytes + len(entry) > _WAITING_BYTES and threading.current_thread() is not self._thread:
                self.dropped += 1
            else:
                self._entries.append(entry)
                self._bytes += len(entry)
                self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: each entry is written as soon as possible."""

    def close(self, limit_s: float) -> None:
        """Write what waits, for a limited time, and end the thread. Later entries are lost."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(limit_s)

    def _run(self) -> None:
        reported = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._entries or self._is_closed)
                if not self._entries:
                    return
                entry = self._entries.popleft()
            is_written = self._write(entry)
            with self._changed:
                self._bytes -= len(entry)
                self.dropped += not is_written
                dropped = self.dropped - reported if is_written and not self._entries else 0
            if dropped:
                reported += dropped
                self._on_dropped(dropped)

    def _write(self, entry: bytes) -> bool:
        """Write an entry; return False if that fails, for example on a full disk."""
        try:
            while entry:
                try:
                    entry = entry[os.write(self._descriptor, entry) :]
                except BlockingIOError:  # another program with the same terminal or pipe has made it non-blocking
                    select.select([], [self._descriptor], [])
        except OSError:
            return False
        return True
