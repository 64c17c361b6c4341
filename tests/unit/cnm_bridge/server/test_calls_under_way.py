# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How long Docker has been idle is measured, for work that waits for that."""

import math

import pytest

from cnm_bridge.server.rpc import CallsUnderWay


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The current time, as the only element of a list."""
    now = [100.0]
    monkeypatch.setattr("cnm_bridge.server.rpc.time.monotonic", lambda: now[0])
    return now


def test_docker_is_not_idle_during_a_call() -> None:
    """A call about an endpoint counts for every other endpoint, but not for that one."""
    calls = CallsUnderWay()
    assert calls.quiet_s("a") == math.inf
    with calls.counted("Leave", "a"):
        assert (calls.quiet_s("a"), calls.quiet_s("b")) == (math.inf, 0)
        with calls.counted("Join", "b"):
            assert calls.quiet_s("a") == calls.quiet_s("b") == 0
            assert calls.all == ("Leave", "Join")
    with calls.counted("CreateNetwork", None):
        assert calls.quiet_s("a") == 0


def test_the_idle_time_begins_with_the_last_call_about_another_endpoint(clock: list[float]) -> None:
    """It does so however many calls about the same endpoint came before and after it."""
    calls = CallsUnderWay()
    for endpoint_id in ("c", "d", "c", "e", "e"):
        with calls.counted("Join", endpoint_id):
            clock[0] += 1
    clock[0] += 10
    assert {key: calls.quiet_s(key) for key in "cdef"} == {"c": 10, "d": 10, "e": 12, "f": 10}
