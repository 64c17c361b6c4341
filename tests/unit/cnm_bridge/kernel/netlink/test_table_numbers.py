# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A table of a staging namespace gets another number where a route of another network is in the way."""

from dataclasses import replace
from ipaddress import ip_network

import pytest

from cnm_bridge.kernel import MAIN_TABLE, Route
from cnm_bridge.kernel.netlink.table_numbers import Places, choose_tables
from tests.unit.cnm_bridge.planning.snapshots import route

AWAY = route("0.0.0.0/0", "10.1.0.1", table=100)
HOME = route("10.1.0.0/24", table=100)
OTHERS: Places = {100: frozenset({(ip_network("0.0.0.0/0"), 0)})}


def test_a_number_that_nobody_has_stays() -> None:
    """Also where other links have routes in the table, but none in the way."""
    assert choose_tables([AWAY, HOME], [], {}) == {}
    assert choose_tables([HOME], [], OTHERS) == {}
    assert choose_tables([replace(AWAY, metric=5)], [], OTHERS) == {}


def test_the_next_free_number() -> None:
    """One that is used by anybody, or wanted, is not free."""
    assert choose_tables([AWAY, HOME], [], OTHERS) == {100: 101}
    assert choose_tables([AWAY, replace(AWAY, table=101)], [], {**OTHERS, 102: frozenset()}) == {100: 103}


def test_two_tables_do_not_become_one() -> None:
    """Each has a number of its own."""
    others: Places = {100: OTHERS[100], 101: OTHERS[100]}
    assert choose_tables([AWAY, replace(AWAY, table=101)], [], others) == {100: 102, 101: 103}


@pytest.mark.parametrize("others", [{}, OTHERS])
def test_what_was_chosen_is_chosen_again(others: Places) -> None:
    """Whether the other network is still there or not, and though a part of the routes was lost."""
    assert choose_tables([AWAY, HOME], [replace(HOME, table=101)], others) == {100: 101}


@pytest.mark.parametrize("table", [253, MAIN_TABLE, 255])
def test_the_tables_of_the_kernel_keep_their_numbers(table: int) -> None:
    """Everybody shares them."""
    wanted: Route = replace(AWAY, table=table)
    assert choose_tables([wanted], [], {table: OTHERS[100]}) == {}


def test_what_is_in_the_wrong_place_decides_nothing() -> None:
    """A part of the routes got into the other network's table before that one was there."""
    assert choose_tables([AWAY, HOME], [HOME], OTHERS) == {100: 101}


def test_a_table_of_the_link_that_is_another() -> None:
    """Its number is not for this one, though the link has it."""
    spare = replace(HOME, table=101, metric=9)
    assert choose_tables([AWAY], [spare], {}) == {}
    assert choose_tables([AWAY], [spare], OTHERS) == {100: 102}
    assert choose_tables([AWAY], [replace(spare, table=100)], {}) == {}
