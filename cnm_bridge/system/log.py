# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Structured logs on stderr: an event name and fields, as JSON or as text for a terminal.

`cnm_bridge.server.rpc` binds the fields of a call (`rpc`, `network_id`, `endpoint_id`) to structlog's context
variables, `traced` the field `trace_id`. If stderr leads to the journal, each line begins with its priority
(sd-daemon(3)), so that `journalctl -p warning` shows what it should.

One thread writes the lines: stderr may block for as long as no one reads it (a full pipe, a hung journald), and no call
of Docker waits for that.
"""

import logging
import os
import secrets
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from cnm_bridge.core.settings import LogFormat, LogLevel
from cnm_bridge.system.systemd import is_journal

log = structlog.get_logger()

_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    # Tracebacks must not contain local variables: configurations may contain credentials.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
_PRIORITIES: Final = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""The priorities of syslog."""

_SELDOM_S: Final = 60.0

_CLOSE_S: Final = 1.0
"""How long the end of the daemon waits for a log that no one reads."""

_WAITING_BYTES: Final = 1 << 20
"""How much waits for a slow reader: some 4000 lines."""

_TRACE_FIELD: Final = "trace_id"
_TRACE_BYTES: Final = 16


class RateLimit:
    """Counts events that may come any number of times, and decides which are logged: one a minute."""

    def __init__(self) -> None:
        self._count = 0
        self._quiet_until = 0.0

    def count(self) -> int:
        """Count an event. Return how many there were since the last one that was logged, or 0 if it is too soon."""
        self._count += 1
        if time.monotonic() < self._quiet_until:
            return 0
        count, self._count = self._count, 0
        self._quiet_until = time.monotonic() + _SELDOM_S
        return count


class LogWriter:
    """Writes each entry as a whole, in order; drops it if too much waits already, or if it cannot be written.

    It has of `typing.TextIO` what loggers call. Its thread does not keep the process from ending.
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


@contextmanager
def log_output() -> Iterator[LogWriter]:
    """Yield what writes the log to stderr; at the end wait for the last lines, for a limited time."""
    writer = LogWriter(sys.stderr.fileno(), _report_dropped)
    try:
        yield writer
    finally:
        writer.close(_CLOSE_S)


def _report_dropped(count: int) -> None:
    log.warning("log.lines_dropped", count=count, consequence="no one read the log, or it could not be written")


def configure_logging(level: LogLevel, fmt: LogFormat, output: LogWriter | TextIO) -> None:
    """Configure structlog, and log the warnings of other libraries in the same form."""
    text = fmt is LogFormat.TEXT or (fmt is LogFormat.AUTO and sys.stderr.isatty())
    stream = cast(TextIO, output)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)]
        if text
        else [_TRACEBACKS, structlog.processors.JSONRenderer()]
    )
    if is_journal(sys.stderr.fileno()):
        rendering[-1] = _with_priority(rendering[-1])
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.getLogger("cni_invoker").setLevel(threshold)
    logging.basicConfig(level=max(threshold, logging.WARNING), handlers=[handler], force=True)


def _with_priority(render: Processor) -> Processor:
    """Return a renderer that puts the priority in front of each line of another one."""

    def rendered(logger: WrappedLogger, method: str, event: EventDict) -> str:
        prefix = f"<{_PRIORITIES.get(str(event.get('level')), _PRIORITIES['info'])}>"
        text = str(render(logger, method, event))
        return "\n".join(f"{prefix}{line}" for line in text.split("\n"))

    return rendered


@contextmanager
def traced(**fields: str) -> Iterator[None]:
    """Give the work of the block, such as a call of Docker or a teardown, an ID and these fields in the log."""
    with structlog.contextvars.bound_contextvars(**{_TRACE_FIELD: secrets.token_hex(_TRACE_BYTES)}, **fields):
        yield
