# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Structured logs on stderr: an event name and fields, as JSON or as text for a terminal.

`cnm_bridge.api.rpc` binds the fields of a call (`rpc`, `network_id`, `endpoint_id`) to structlog's context variables.
"""

import logging
import sys
from typing import Final

import structlog
from structlog.typing import Processor

from cnm_bridge.settings import LogFormat, LogLevel

__all__ = ["configure_logging"]


_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    # Tracebacks must not contain local variables: configurations may contain credentials.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure_logging(level: LogLevel, fmt: LogFormat) -> None:
    """Configure structlog, and log the warnings of other libraries in the same form."""
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
