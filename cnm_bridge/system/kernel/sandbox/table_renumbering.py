# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Chooses the numbers of routing tables in a sandbox; pure.

In a staging namespace every number is free. `sbr` takes the first one from 100 on, so two networks of one container
would use the same table. If a route of the other network conflicts, the table gets the next unused number, as it would
if the plugins had run in the container.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Final

from cnm_bridge.core.link_state import MAIN_TABLE, Route
from cnm_bridge.system.kernel.netlink.routes import Places

__all__ = ["choose_tables"]


_SHARED: Final = frozenset({253, MAIN_TABLE, 255})  # default, main, local


def choose_tables(wanted: Iterable[Route], present: Iterable[Route], others: Places) -> dict[int, int]:
    """Return the new numbers of those tables whose number changes.

    Args:
        wanted: The routes to add.
        present: The routes through the link in the sandbox: a number that was chosen earlier is chosen again.
        others: The routes through other links.
    """
    tables: dict[int, list[Route]] = {}
    for route in wanted:
        if route.table not in _SHARED:
            tables.setdefault(route.table, []).append(route)
    there, chosen = frozenset(present), dict[int, int]()
    own = {route.table for route in there}
    for table, routes in sorted(tables.items()):
        earlier = (number for number in sorted(own) if _is_place(number, routes, there))
        unused = (number for number in count(table + 1) if number not in {*own, *others, *tables})
        candidates = chain(earlier, (table,), unused)
        taken = {*chosen.values(), *_SHARED}
        chosen[table] = next(n for n in candidates if n not in taken and _has_room(n, routes, others))
    return {table: number for table, number in chosen.items() if table != number}


def _has_room(number: int, routes: Sequence[Route], others: Places) -> bool:
    """Return whether no route of another link conflicts with these routes."""
    taken = others.get(number, frozenset())
    return all((route.destination, route.metric) not in taken for route in routes)


def _is_place(number: int, routes: Sequence[Route], there: frozenset[Route]) -> bool:
    """Return whether any of the routes exists in this table."""
    return any(replace(route, table=number) in there for route in routes)
