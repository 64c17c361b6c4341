# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The context of a distributed trace, which is passed to plugins so that their spans become part of it."""

import re
from dataclasses import dataclass
from typing import Final

from cni_invoker.errors import InvalidParameter
from cni_invoker.protocol import ErrorCode

__all__ = ["TRACE_VARIABLES", "TraceContext"]

TRACE_VARIABLES: Final = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
"""The environment variables that carry it, as in libcni and OpenTelemetry's "Environment Variables as Carriers"."""


# W3C Trace Context: version ff is forbidden, and so are all-zero trace and span IDs.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HEADER: Final = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """A span that an operation belongs to (W3C Trace Context, W3C Baggage).

    Attributes:
        traceparent: E.g. `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
        tracestate: Data of tracing systems, e.g. `congo=t61rcWkgMzE`; may be empty.
        baggage: Data of the application, e.g. `tenant=blue`; may be empty.

    Raises:
        InvalidParameter: A value violates the W3C format.
    """

    traceparent: str
    tracestate: str = ""
    baggage: str = ""

    def __post_init__(self) -> None:
        if _TRACEPARENT.fullmatch(self.traceparent) is None:
            rule = "it must be a version, a trace, a span and flags, as in W3C Trace Context"
            raise InvalidParameter("traceparent", self.traceparent, rule, code=ErrorCode.INVALID_ENVIRONMENT)
        for name, value in (("tracestate", self.tracestate), ("baggage", self.baggage)):
            if _HEADER.fullmatch(value) is None:
                raise InvalidParameter(name, value, "it must be printable ASCII", code=ErrorCode.INVALID_ENVIRONMENT)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that carry it, without empty ones."""
        values = zip(TRACE_VARIABLES, (self.traceparent, self.tracestate, self.baggage), strict=True)
        return {name: value for name, value in values if value}
