# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Structured logs on stderr: an event name and fields, as JSON or as text for a terminal.

`cnm_bridge.server.api.rpc` binds the fields of a call (`rpc`, `network_id`, `endpoint_id`) to structlog's context
variables, `cnm_bridge.system.trace` the field `trace_id`. If stderr leads to the journal, each line begins with its
priority (sd-daemon(3)), so that `journalctl -p warning` shows what it should.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from cnm_bridge.core.settings import LogFormat, LogLevel
from cnm_bridge.system.log_writer import LogWriter
from cnm_bridge.system.process.systemd import is_journal

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


class Seldom:
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
