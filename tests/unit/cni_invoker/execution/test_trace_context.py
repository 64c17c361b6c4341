# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which trace contexts there can be."""

import pytest

from cni_invoker import InvalidParameter, TraceContext

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_its_environment() -> None:
    """Each part has its variable; what is empty has none."""
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
def test_what_is_no_span(traceparent: str) -> None:
    """What W3C calls invalid is refused."""
    with pytest.raises(InvalidParameter, match="traceparent"):
        TraceContext(traceparent=traceparent)


@pytest.mark.parametrize("value", ["a\0b", "a\nb", "ä"])
def test_what_is_no_header(value: str) -> None:
    """The other parts must be fit for an environment as well."""
    with pytest.raises(InvalidParameter, match="tracestate"):
        TraceContext(traceparent=PARENT, tracestate=value)
    with pytest.raises(InvalidParameter, match="baggage"):
        TraceContext(traceparent=PARENT, baggage=value)
