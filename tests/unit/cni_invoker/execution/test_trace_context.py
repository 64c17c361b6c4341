# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which trace contexts are valid."""

import pytest

from cni_invoker import TraceContext
from cni_invoker.errors import InvalidParameter

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_trace_context_as_environment() -> None:
    """Each part has its variable; an empty part has none."""
    assert TraceContext(traceparent=PARENT).environment == {"TRACEPARENT": PARENT}
    assert TraceContext(traceparent=PARENT, tracestate="congo=t61", baggage="a=b").environment == {
        "TRACEPARENT": PARENT,
        "TRACESTATE": "congo=t61",
        "BAGGAGE": "a=b",
    }


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "00",
        PARENT.upper(),
        f"{PARENT}\n",
        f"ff{PARENT[2:]}",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"{PARENT[:36]}{'0' * 16}-01",
    ],
)
def test_an_invalid_traceparent_is_rejected(traceparent: str) -> None:
    """It must be valid by W3C Trace Context."""
    with pytest.raises(InvalidParameter, match="traceparent"):
        TraceContext(traceparent=traceparent)


@pytest.mark.parametrize("value", ["a\0b", "a\nb", "ä"])
def test_an_invalid_tracestate_or_baggage_is_rejected(value: str) -> None:
    """These parts must be printable ASCII, as in HTTP headers."""
    with pytest.raises(InvalidParameter, match="tracestate"):
        TraceContext(traceparent=PARENT, tracestate=value)
    with pytest.raises(InvalidParameter, match="baggage"):
        TraceContext(traceparent=PARENT, baggage=value)
