# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Routing tables of a sandbox: which number a table of a staging namespace gets there. Pure.

In a staging namespace every number is free: `sbr`, for one, takes the first from 100 on, and so would have the same
table for two networks of one container. Where a route of the other network is in the way, the table gets the next
number that nobody uses, as it would have if the plugins had run in the container.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from cnm_bridge.kernel.snapshot import MAIN_TABLE, IpNetwork, Route

__all__ = ["Places", "choose_tables"]

Places = Mapping[int, frozenset[tuple[IpNetwork, int]]]
"""By table, destination and metric of its routes: no two of them can be the same."""

_EVERYBODYS: Final = frozenset({253, MAIN_TABLE, 255})  # default, main, local


def choose_tables(wanted: Iterable[Route], present: Iterable[Route], others: Places) -> dict[int, int]:
    """Return the numbers of tables that are not what they were.

    Args:
        wanted: The routes that are to be.
        present: Those there are through the link: a number that was chosen earlier is chosen again.
        others: What is taken by routes through other links.
    """
    tables: dict[int, list[Route]] = {}
    for route in wanted:
        if route.table not in _EVERYBODYS:
            tables.setdefault(route.table, []).append(route)
    there, chosen = frozenset(present), dict[int, int]()
    for table, routes in sorted(tables.items()):
        used = {*chosen.values(), *_EVERYBODYS}
        chosen[table] = _find_earlier(routes, there, used) or _find_free(table, routes, others, {*used, *tables})
    return {table: number for table, number in chosen.items() if table != number}


def _find_earlier(routes: Sequence[Route], there: frozenset[Route], used: set[int]) -> int | None:
    numbers = {route.table for route in there} - used
    return next(
        (number for number in sorted(numbers) if any(replace(route, table=number) in there for route in routes)), None
    )


def _find_free(table: int, routes: Sequence[Route], others: Places, used: set[int]) -> int:
    taken = others.get(table, frozenset())
    if not any((route.destination, route.metric) in taken for route in routes):
        return table
    return next(number for number in count(table + 1) if number not in others and number not in used)
