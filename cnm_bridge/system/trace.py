# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An ID for each call of Docker and each teardown: in the log as `trace_id`, and for plugins in TRACEPARENT.

The plugins that write traces (libcni's variables, OpenTelemetry's "Environment Variables as Carriers") and all lines of
the log about the same work so have one ID. Nothing is sent anywhere; the flags say "not sampled".
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from cni_invoker import TraceContext

_FIELD: Final = "trace_id"
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


@contextmanager
def traced(**fields: str) -> Iterator[None]:
    """Give what the block does, and the tasks that it starts, an ID of its own, and these fields in the log."""
    with structlog.contextvars.bound_contextvars(**{_FIELD: secrets.token_hex(_TRACE_BYTES)}, **fields):
        yield


def find_trace() -> TraceContext | None:
    """Return the context for a plugin that is executed now; None outside `traced`."""
    trace_id = structlog.contextvars.get_contextvars().get(_FIELD)
    if trace_id is None:
        return None
    return TraceContext(traceparent=f"00-{trace_id}-{secrets.token_hex(_SPAN_BYTES)}-00")
