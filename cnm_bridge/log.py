# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Structured logs on stderr: an event name and fields, as JSON, or readable on a terminal.

Fields that belong to a whole call (`rpc`, `network_id`, `endpoint_id`) are bound once, in `cnm_bridge.api.rpc`, by
structlog's context variables.
"""

import logging
import sys
from typing import Final

import structlog
from structlog.typing import Processor

from cnm_bridge.settings import LogFormat, LogLevel

__all__ = ["configure_logging"]


_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    # Local variables would show configurations, and the credentials in them.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure_logging(level: LogLevel, fmt: LogFormat) -> None:
    """Set up structlog for this process, and let other libraries' warnings through in the same form."""
    text = fmt is LogFormat.TEXT or (fmt is LogFormat.AUTO and sys.stderr.isatty())
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
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.getLogger("cni_invoker").setLevel(threshold)
    logging.basicConfig(level=max(threshold, logging.WARNING), handlers=[handler], force=True)
