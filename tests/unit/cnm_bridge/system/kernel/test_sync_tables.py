# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A routing table of a staging namespace gets another number if a route of another network conflicts with it."""

from dataclasses import replace
from ipaddress import ip_network

import pytest

from cnm_bridge.core.link_state import MAIN_TABLE, Route
from cnm_bridge.system.kernel.netlink.routes import Places
from cnm_bridge.system.kernel.sync import choose_tables
from tests.unit.cnm_bridge.core.snapshots import route

AWAY = route("0.0.0.0/0", "10.1.0.1", table=100)
HOME = route("10.1.0.0/24", table=100)
OTHERS: Places = {100: frozenset({(ip_network("0.0.0.0/0"), 0)})}


def test_a_table_without_conflicts_keeps_its_number() -> None:
    """Routes of other links in the table are no conflict unless destination and metric are equal."""
    assert choose_tables([AWAY, HOME], [], {}) == {}
    assert choose_tables([HOME], [], OTHERS) == {}
    assert choose_tables([replace(AWAY, metric=5)], [], OTHERS) == {}


def test_a_conflicting_table_gets_the_next_free_number() -> None:
    """A number is free if no link uses it, and no other table needs it."""
    assert choose_tables([AWAY, HOME], [], OTHERS) == {100: 101}
    assert choose_tables([AWAY, replace(AWAY, table=101)], [], {**OTHERS, 102: frozenset()}) == {100: 103}


def test_two_tables_get_different_numbers() -> None:
    """Tables are never merged."""
    others: Places = {100: OTHERS[100], 101: OTHERS[100]}
    assert choose_tables([AWAY, replace(AWAY, table=101)], [], others) == {100: 102, 101: 103}


@pytest.mark.parametrize("others", [{}, OTHERS])
def test_an_earlier_choice_is_repeated(others: Places) -> None:
    """It does not depend on whether the conflicting network still exists, or a part of the routes is missing."""
    assert choose_tables([AWAY, HOME], [replace(HOME, table=101)], others) == {100: 101}


@pytest.mark.parametrize("table", [253, MAIN_TABLE, 255])
def test_the_kernels_tables_keep_their_numbers(table: int) -> None:
    """The tables default, main and local are shared by all links."""
    wanted: Route = replace(AWAY, table=table)
    assert choose_tables([wanted], [], {table: OTHERS[100]}) == {}


def test_routes_in_the_conflicting_table_are_no_earlier_choice() -> None:
    """A part of the routes was added to that table before the other network used it."""
    assert choose_tables([AWAY, HOME], [HOME], OTHERS) == {100: 101}


def test_another_table_of_the_link_is_no_earlier_choice() -> None:
    """Its number is not used for this table, although the link uses it."""
    spare = replace(HOME, table=101, metric=9)
    assert choose_tables([AWAY], [spare], {}) == {}
    assert choose_tables([AWAY], [spare], OTHERS) == {100: 102}
    assert choose_tables([AWAY], [replace(spare, table=100)], {}) == {}
