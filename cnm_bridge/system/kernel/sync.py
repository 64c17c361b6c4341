# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Changes a sandbox until it is as planned, and removes the plan's rules again.

Compares everything, changes what differs, and compares again. So what exists is not touched, failures are reported by
name, and no call depends on an earlier one. Runs in one thread, which is in the sandbox.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from errno import EEXIST, ENOENT, ESRCH
from functools import partial
from itertools import chain, count
from typing import Final, NamedTuple

from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link.plan_sandbox import Placement, ReplacedRoute, SandboxPlan
from cnm_bridge.core.link_state import MAIN_TABLE, Route
from cnm_bridge.system.kernel.netlink.addresses import (
    add_further_address,
    find_addresses,
    find_neighbours,
    set_neighbour,
)
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.netlink.routes import (
    Places,
    add_route,
    find_places,
    find_plain_routes,
    has_default,
    remove_route,
    replace_route,
)
from cnm_bridge.system.kernel.netlink.rules import add_rule, find_rules, in_sandbox, remove_rule
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.sysctl import name_for_link, read_setting, write_setting

_ROUNDS: Final = 2
"""More than one, because a step can undo what exists: `ip_forward` sets the forwarding of every link."""
_SHARED: Final = frozenset({253, MAIN_TABLE, 255})  # default, main, local


class _Step(NamedTuple):
    """A missing item, in words, and the call that adds it; or an unwanted one, and the call that removes it."""

    what: str
    do: Callable[[], None]


def is_placed(netlink: Netlink, link: Link, placement: Placement) -> bool:
    """Return whether libnetwork has configured a link."""
    if not link.is_up:
        return False
    addresses = {address.address for address in find_addresses(netlink, link)}
    if not addresses.issuperset(placement.addresses):
        return False
    destinations = {route.destination for route in find_plain_routes(netlink, link) if route.table == MAIN_TABLE}
    return destinations.issuperset(placement.destinations)


def sync(netlink: Netlink, link: Link, sandbox_plan: SandboxPlan) -> tuple[str, ...]:
    """Change what differs from the plan and return it in words; empty if nothing differs.

    Raise `KernelError` if some of it could not be changed; the rest has been.
    """
    sandbox_plan = _in_sandbox(netlink, link, sandbox_plan)
    done: list[str] = []
    reasons: dict[str, str | None] = {}
    for _ in range(_ROUNDS):
        steps = tuple(_missing(netlink, link, sandbox_plan))
        done += [step.what for step in steps if step.what not in reasons]
        reasons |= {step.what: _try(step.do) for step in steps}
        if not steps:
            return tuple(done)
    left = tuple(step.what for step in _missing(netlink, link, sandbox_plan))
    if left:
        failures = [f"{what}: {reasons.get(what) or 'it was removed again'}" for what in left]
        raise KernelError("sync", f"link {link.state.name}", "; ".join(failures))
    return tuple(done)


def withdraw(netlink: Netlink, link: Link, sandbox_plan: SandboxPlan) -> tuple[str, ...]:
    """Remove the plan's policy rules, which the kernel does not remove with the link; return them in words."""
    present = {rule.message for rule in find_rules(netlink)}
    rules = tuple(rule for rule in _in_sandbox(netlink, link, sandbox_plan).rules if rule.message in present)
    for rule in rules:
        _ignoring(ENOENT, partial(remove_rule, netlink, rule))
    return tuple(map(str, rules))


def _in_sandbox(netlink: Netlink, link: Link, sandbox_plan: SandboxPlan) -> SandboxPlan:
    """Return the plan with the link name and the table numbers of the sandbox."""
    routes, rules = sandbox_plan.routes, sandbox_plan.rules
    tables: dict[int, int] = {}
    if any(route.table != MAIN_TABLE for route in routes):
        tables = choose_tables(routes, find_plain_routes(netlink, link), find_places(netlink, link))
    return replace(
        sandbox_plan,
        routes=tuple(replace(route, table=tables.get(route.table, route.table)) for route in routes),
        rules=tuple(in_sandbox(rule, sandbox_plan.ifname, link.state.name, tables) for rule in rules),
    )


def _try(do: Callable[[], None]) -> str | None:
    """Call `do` and return the reason of its failure, None if it succeeded."""
    try:
        do()
    except OSError as exc:
        return exc.strerror or str(exc)
    return None


def _missing(netlink: Netlink, link: Link, sandbox_plan: SandboxPlan) -> Iterator[_Step]:
    """Yield what is missing in the order to add it: addresses before the routes that use them as source."""
    yield from _missing_sysctls(link, sandbox_plan)
    if sandbox_plan.neighbours:
        present = set(find_neighbours(netlink, link))
        for neighbour in sandbox_plan.neighbours:
            if neighbour not in present:
                yield _Step(str(neighbour), partial(set_neighbour, netlink, link, neighbour))
    if sandbox_plan.addresses:
        taken = {(address.address, address.peer) for address in find_addresses(netlink, link)}
        for address in sandbox_plan.addresses:
            if (address.address, address.peer) not in taken:
                yield _Step(f"address {address.address}", partial(add_further_address, netlink, link, address))
    yield from _missing_routes(netlink, link, sandbox_plan)
    if sandbox_plan.rules:
        there = {rule.message for rule in find_rules(netlink)}
        for rule in sandbox_plan.rules:
            if rule.message not in there:
                yield _Step(str(rule), partial(add_rule, netlink, rule))


def _missing_sysctls(link: Link, sandbox_plan: SandboxPlan) -> Iterator[_Step]:
    for sysctl in sandbox_plan.sysctls:
        name = name_for_link(sysctl.name, sandbox_plan.ifname, link.state.name)
        if read_setting(name) != sysctl.value:
            yield _Step(str(sysctl), partial(write_setting, name, sysctl.value))


def _missing_routes(netlink: Netlink, link: Link, sandbox_plan: SandboxPlan) -> Iterator[_Step]:
    if not (sandbox_plan.unwanted or sandbox_plan.routes or sandbox_plan.replaced or sandbox_plan.fallbacks):
        return
    present = frozenset(find_plain_routes(netlink, link))
    for route in sandbox_plan.unwanted:
        if route in present:
            yield _Step(f"no route {route}", partial(remove_route, netlink, link, route))
    for route in sandbox_plan.routes:
        if route not in present:
            yield _Step(f"route {route}", partial(add_route, netlink, link, route))
    for pair in sandbox_plan.replaced:
        is_default = pair.replacement.destination.prefixlen == 0
        if pair.plain in present or not (pair.replacement in present or is_default):
            yield _Step(f"route {pair.replacement}", partial(_replace, netlink, link, pair, present))
    for fallback in sandbox_plan.fallbacks:
        if fallback not in present and not has_default(netlink, fallback.destination):
            yield _Step(f"route {fallback}", partial(add_route, netlink, link, fallback))


def _replace(netlink: Netlink, link: Link, pair: ReplacedRoute, present: frozenset[Route]) -> None:
    """Replace the plain route by the wanted one, without a moment in which both are missing."""
    if pair.plain not in present:
        add_route(netlink, link, pair.replacement)
    elif pair.plain.metric == pair.replacement.metric:
        replace_route(netlink, link, pair.replacement)
    else:
        _ignoring(EEXIST, partial(add_route, netlink, link, pair.replacement))
        _ignoring(ESRCH, partial(remove_route, netlink, link, pair.plain))


def _ignoring(errno: int, do: Callable[[], None]) -> None:
    try:
        do()
    except OSError as exc:
        if exc.errno != errno:
            raise


def choose_tables(wanted: Iterable[Route], present: Iterable[Route], others: Places) -> dict[int, int]:
    """Return the new numbers of those routing tables whose number changes in a sandbox; pure.

    In a staging namespace every number is free. `sbr` takes the first one from 100 on, so two networks of one container
    would use the same table. If a route of the other network conflicts, the table gets the next unused number, as it
    would if the plugins had run in the container. A number that was chosen earlier, so that it has routes of the link,
    is chosen again.
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
    taken = others.get(number, frozenset())
    return all((route.destination, route.metric) not in taken for route in routes)


def _is_place(number: int, routes: Sequence[Route], there: frozenset[Route]) -> bool:
    return any(replace(route, table=number) in there for route in routes)
