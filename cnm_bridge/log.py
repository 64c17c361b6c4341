# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Structured logs on stderr: an event name and fields, as JSON, or readable on a terminal.

Fields that belong to a whole call (`rpc`, `network_id`, `endpoint_id`) are bound once, in `cnm_bridge.api.rpc`, by
structlog's context variables.
"""

import logging
import sys
from enum import StrEnum

import structlog
from structlog.typing import Processor

__all__ = ["LogFormat", "LogLevel", "configure_logging"]


class LogLevel(StrEnum):
    """What is worth a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line looks."""

    AUTO = "auto"
    """TEXT on a terminal, JSON elsewhere."""
    JSON = "json"
    TEXT = "text"


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
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if text
        else [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(level=max(threshold, logging.WARNING), handlers=[handler], force=True)
