# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What happens often is counted, and logged once in a while."""

import time

import pytest

from cnm_bridge.serving.seldom import Seldom


def test_the_first_event_is_logged_and_the_next_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time has come, the number is that of all since the last line."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    events = Seldom()
    assert [events.count() for _ in range(3)] == [1, 0, 0]
    now += 61
    assert [events.count() for _ in range(2)] == [3, 0]
