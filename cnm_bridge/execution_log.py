# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Logs the duration of each plugin execution."""

import structlog

from cni_invoker import Verb

__all__ = ["ExecutionLog"]

log = structlog.get_logger()


class ExecutionLog:
    """Logs every execution of a plugin; a `cni_invoker.ExecutionObserver`."""

    def on_execution(self, plugin: str, verb: Verb, duration_s: float) -> None:
        """Log one execution."""
        log.debug("plugin.executed", plugin=plugin, verb=verb.value, duration_ms=round(duration_s * 1000, 1))
