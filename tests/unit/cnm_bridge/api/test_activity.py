# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How long Docker has been quiet is known, for what can wait until it is."""

import math

import pytest

from cnm_bridge.api import CallsUnderWay


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in the list's only place."""
    now = [100.0]
    monkeypatch.setattr("cnm_bridge.api.activity.time.monotonic", lambda: now[0])
    return now


def test_what_is_under_way() -> None:
    """Docker is not quiet about anything else than the endpoint that it wants something of."""
    calls = CallsUnderWay()
    assert calls.quiet_s("a") == math.inf
    with calls.counted("Leave", "a"):
        assert (calls.quiet_s("a"), calls.quiet_s("b")) == (math.inf, 0)
        with calls.counted("Join", "b"):
            assert calls.quiet_s("a") == calls.quiet_s("b") == 0
            assert calls.all == ("Leave", "Join")
    with calls.counted("CreateNetwork", None):
        assert calls.quiet_s("a") == 0


def test_what_has_ended(clock: list[float]) -> None:
    """The last call about anything else counts, however many there were about the same before and after it."""
    calls = CallsUnderWay()
    for endpoint_id in ("c", "d", "c", "e", "e"):
        with calls.counted("Join", endpoint_id):
            clock[0] += 1
    clock[0] += 10
    assert {key: calls.quiet_s(key) for key in "cdef"} == {"c": 10, "d": 10, "e": 12, "f": 10}
