# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A refusal for lack of addresses is correct only if no address was free."""

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
def test_a_full_pool_is_a_correct_reason(taken: frozenset[Taken], rivals: dict[str, int], *, is_right: bool) -> None:
    """Addresses of the same list count, and those of operations that started at the same time."""
    assert is_short(FULL_TEXT, {"again": POOL}, taken, rivals) is is_right


def test_an_address_in_use_is_a_correct_reason() -> None:
    """It does not matter whether other addresses are free."""
    text = "requested IP address 10.82.6.10 is not available in range set"
    assert is_short(text, {"again": frozenset({"10.82.6.10"})}, ONE, {})
    assert not is_short(text, {"again": frozenset({"10.82.6.11"})}, ONE, {})


def test_other_errors_are_not_excused() -> None:
    """A full pool excuses no other error, and no operation that does not need one of its addresses."""
    assert not is_short("xtables lock held", {"again": POOL}, FULL, {})
    assert not is_short(FULL_TEXT, {}, FULL, {})
