# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A refusal is right exactly when no address was left."""

import pytest

from tests.soak.shortage import Taken, is_short

POOL = frozenset({"10.82.6.10", "10.82.6.11"})
FULL = frozenset(("again", address) for address in POOL)
ONE = frozenset({("again", "10.82.6.10")})
FULL_TEXT = "failed to allocate for range 0: no IP addresses available in range set: 10.82.6.10-10.82.6.11"


@pytest.mark.parametrize(
    ("taken", "rivals", "is_right"),
    [
        (FULL, {}, True),
        (FULL | {("again", "10.82.6.99")}, {}, True),
        (ONE, {}, False),
        (ONE | {("again", "10.82.6.99"), ("stuck", "10.82.6.11")}, {}, False),
        (ONE, {"again": 1}, True),
        (ONE, {"stuck": 1}, False),
        (frozenset(), {"again": 1}, False),
    ],
)
def test_the_pool_is_full(taken: frozenset[Taken], rivals: dict[str, int], *, is_right: bool) -> None:
    """Those of the list count, and others that began at the same time."""
    assert is_short(FULL_TEXT, {"again": POOL}, taken, rivals) is is_right


def test_the_chosen_address_is_taken() -> None:
    """Then it does not matter that others are free."""
    text = "requested IP address 10.82.6.10 is not available in range set"
    assert is_short(text, {"again": frozenset({"10.82.6.10"})}, ONE, {})
    assert not is_short(text, {"again": frozenset({"10.82.6.11"})}, ONE, {})


def test_another_error() -> None:
    """A full pool excuses nothing else, and who needs no rare address has no excuse."""
    assert not is_short("xtables lock held", {"again": POOL}, FULL, {})
    assert not is_short(FULL_TEXT, {}, FULL, {})
