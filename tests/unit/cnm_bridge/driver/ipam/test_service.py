# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Loops of requests for a pool."""

import itertools

from cnm_bridge.driver.ipam.service import RepeatedRequests


def test_a_loop_is_noticed_and_then_counted_anew() -> None:
    """The eighth equal request within two seconds is one of a loop; the user may try again at once."""
    repeated = RepeatedRequests(clock=itertools.count(0, 0.1).__next__)
    assert [repeated.is_endless("lan") for _ in range(9)] == [False] * 7 + [True, False]


def test_other_requests_do_not_count() -> None:
    """Each section and subnet is counted on its own."""
    repeated = RepeatedRequests(clock=itertools.count(0, 0.1).__next__)
    assert not any(repeated.is_endless(name) for _ in range(7) for name in ("lan", "wan"))


def test_slow_requests_do_not_count() -> None:
    """A script that makes many networks of one section is slower than a loop."""
    repeated = RepeatedRequests(clock=itertools.count(0, 0.3).__next__)
    assert not any(repeated.is_endless("lan") for _ in range(30))
