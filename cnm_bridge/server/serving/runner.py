# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs an application of aiohttp: its log is ours, and nothing is decompressed."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from cnm_bridge.system.log import Seldom

log = structlog.get_logger()

_CUT_OFF_S: Final = 0.1
"""Time limit at the end for connections without a running request, or with one that was cancelled."""


@asynccontextmanager
async def running(app: web.Application, *, cancels: bool) -> AsyncIterator[web.Server]:
    """Yield the server of an application, which makes the protocols of its connections; end them after the block.

    Args:
        app: Answers the requests.
        cancels: Whether an answer is cancelled when its client disconnects.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=_CUT_OFF_S,
        handler_cancellation=cancels,
        auto_decompress=False,  # Docker compresses nothing, and a kilobyte could expand to a gigabyte
        logger=_make_logger(),
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101  # it is set up
    try:
        yield runner.server
    finally:
        await runner.cleanup()


def _make_logger() -> logging.Logger:
    """Return a logger for aiohttp, which logs each request that is not HTTP as an error with a traceback."""
    logger = logging.Logger("aiohttp", logging.ERROR)  # noqa: LOG001  # one of the process's would keep the handler
    logger.addHandler(_Handler())
    return logger


class _Handler(logging.Handler):
    """Logs invalid requests seldom, and bugs as what they are."""

    def __init__(self) -> None:
        super().__init__()
        self._bad = Seldom()

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record, or count it."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            log.error("rpc.bug", what=record.getMessage(), exc_info=error)
        elif count := self._bad.count():
            # its text would quote what was received, which may hold a password
            log.warning("listener.bad_request", error=f"{type(error).__name__} ({error.code})", count=count)
