# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Numbers of routing tables in a sandbox: which number a table of a staging namespace gets there; pure.

In a staging namespace every number is free. `sbr` takes the first one from 100 on, so two networks of one container
would use the same table. If a route of the other network conflicts, the table gets the next unused number, as it would
if the plugins had run in the container.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Final

from cnm_bridge.kernel.records.snapshot import MAIN_TABLE, IpNetwork, Route

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
    own = {route.table for route in there}
    for table, routes in sorted(tables.items()):
        earlier = (number for number in sorted(own) if _is_place(number, routes, there))
        unused = (number for number in count(table + 1) if number not in {*own, *others, *tables})
        candidates = chain(earlier, (table,), unused)
        taken = {*chosen.values(), *_EVERYBODYS}
        chosen[table] = next(n for n in candidates if n not in taken and _has_room(n, routes, others))
    return {table: number for table, number in chosen.items() if table != number}


def _has_room(number: int, routes: Sequence[Route], others: Places) -> bool:
    """Return whether no other link's route is in the way."""
    taken = others.get(number, frozenset())
    return all((route.destination, route.metric) not in taken for route in routes)


def _is_place(number: int, routes: Sequence[Route], there: frozenset[Route]) -> bool:
    """Return whether any of the routes is in this table already."""
    return any(replace(route, table=number) in there for route in routes)
