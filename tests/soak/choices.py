# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The operations that are possible in a world, and a random choice of them; pure."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from tests.soak.lists import CANDIDATES, CHOSEN, HUNG, POOL
from tests.soak.model import Container, World
from tests.soak.operations import Kind, Operation

MOST_CONTAINERS: Final = 9
_MOST_NETWORKS: Final = 16
_MOST_AT_START: Final = 3
"""How many networks a container is made on."""

_WITH_MAC: Final = frozenset({"air6"})
"""The lists on which containers choose their MAC address: of two with the same one on `macvlan` only one can be up."""

_WEIGHTS: Final[Mapping[Kind, int]] = {
    Kind.RUN: 9,
    Kind.PARTNER: 3,
    Kind.CREATE: 2,
    Kind.START: 6,
    Kind.STOP: 4,
    Kind.RESTART: 4,
    Kind.KILL: 2,
    Kind.CRASH: 3,
    Kind.REMOVE: 5,
    Kind.UPDATE: 6,
    Kind.CONNECT: 9,
    Kind.DISCONNECT: 6,
    Kind.CREATE_NETWORK: 4,
    Kind.REMOVE_NETWORK: 4,
}


_CROWDED: Final = 8
"""How much more likely removals are while there are too many containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The possible subjects of a round's next operation: nothing that the others change or need.

    Attributes:
        world: The world before the round.
        containers: The containers that no other operation changes.
        networks: The lists of the networks that no other operation changes, by network.
        taken: What other operations change.
        closed: The lists that allow one network and already have it: Docker's pools may not overlap.
        lists: All lists.
        port_publisher: The lists that can publish ports.
        new: The name of a new container or network, after one letter.
        port: A port that no other container publishes.
        mac: A MAC address that no other container has; None if containers choose none.
        partners: Whether containers may share the network namespace of others.
        updates: Whether containers are made again with the MAC of the previous one.
        most: How many containers there may be.
    """

    world: World
    containers: Mapping[str, Container]
    networks: Mapping[str, str]
    taken: frozenset[str]
    closed: frozenset[str]
    lists: Sequence[str]
    port_publisher: Collection[str]
    new: str
    port: int
    mac: str | None = None
    partners: bool = False
    updates: bool = False
    most: int = MOST_CONTAINERS


_Found = Iterator[Operation]


def choose(rng: random.Random, scope: Scope, kinds: Collection[Kind] = tuple(_WEIGHTS)) -> Operation | None:
    """Return one of the possible operations of these kinds; None if there is none."""
    kinds = list(kinds)
    while kinds:
        kind = rng.choices(kinds, [_weight(scope, kind) for kind in kinds])[0]
        possible = list(_POSSIBLE[kind](scope))
        if possible:
            return rng.choice(possible)
        kinds.remove(kind)
    return None


def _weight(scope: Scope, kind: Kind) -> int:
    """Return how likely a kind is; after a burst, removals are."""
    is_crowded = len(scope.world.containers) > MOST_CONTAINERS
    return _WEIGHTS[kind] * (_CROWDED if is_crowded and kind is Kind.REMOVE else 1)


def _run(kind: Kind) -> Callable[[Scope], _Found]:
    def find(scope: Scope) -> _Found:
        if len(scope.world.containers) - len(scope.world.on_list(HUNG, POOL)) >= scope.most:
            return
        for network, list_name in scope.networks.items():
            if list_name in (HUNG, POOL):
                continue
            ports = (None, scope.port) if list_name in scope.port_publisher else (None,)
            policies = (False, True) if kind is Kind.RUN and list_name not in CANDIDATES else (False,)
            addresses = CANDIDATES[list_name] if list_name in CHOSEN else (None,)
            macs = (None, scope.mac) if list_name in _WITH_MAC and scope.mac else (None,)
            for port, restarts, address, mac in product(ports, policies, addresses, macs):
                first = Operation(
                    kind=kind,
                    container=f"c{scope.new}",
                    network=network,
                    restarts=restarts,
                    port=port,
                    address=address,
                    mac=mac,
                )
                others = _others(scope, first)
                yield first
                if others:
                    yield replace(first, others=others)

    return find


def _others(scope: Scope, first: Operation) -> tuple[str, ...]:
    """Return at most two further networks for a new container, each of another list."""
    assert first.network is not None
    found = {scope.networks[first.network]: first.network}
    for network, list_name in scope.networks.items():
        if len(found) < _MOST_AT_START and _joins(scope, list_name, restarts=first.restarts, port=first.port):
            found.setdefault(list_name, network)
    return tuple(network for network in found.values() if network != first.network)


def _joins(scope: Scope, list_name: str, *, restarts: bool, port: int | None) -> bool:
    """Return whether a container may be connected to a network of a list after its creation.

    With a restart policy it must not need an address of a small pool: Docker tries a restart once, at any time.
    """
    if list_name in (*CHOSEN, HUNG, POOL) or (restarts and list_name in CANDIDATES):
        return False
    return port is None or list_name in scope.port_publisher


def _of_containers(kind: Kind, *, running: bool | None) -> Callable[[Scope], _Found]:
    def find(scope: Scope) -> _Found:
        for name, found in scope.containers.items():
            if found.partner and kind in (Kind.START, Kind.RESTART):
                continue  # whether it can start depends on the other container
            if HUNG in scope.world.lists_of(name) and kind is Kind.START:
                continue
            # a start needs all networks of the container
            if (running is None or found.running == running) and _needs(found) <= set(scope.networks):
                yield Operation(kind=kind, container=name)

    return find


def _partner(scope: Scope) -> _Found:
    if scope.partners and len(scope.world.containers) < scope.most:
        for name, found in scope.containers.items():
            if found.running and not found.partner:
                yield Operation(kind=Kind.PARTNER, container=f"c{scope.new}", partner=name)


def _update(scope: Scope) -> _Found:
    for name, found in scope.containers.items() if scope.updates else ():
        is_possible = found.running and found.home in found.networks <= set(scope.networks)
        if is_possible and not scope.world.lists_of(name) & {HUNG, POOL}:
            yield Operation(
                kind=Kind.UPDATE,
                container=name,
                network=found.home,
                restarts=found.restarts,
                port=found.port,
                address=found.address,
                others=tuple(sorted(found.networks - {found.home})),
            )


def _connect(scope: Scope) -> _Found:
    for name, found in scope.containers.items():
        if found.partner or HUNG in scope.world.lists_of(name):
            continue
        lists = scope.world.lists_of(name)  # two networks of one list would give a container two links in one subnet
        for network, list_name in scope.networks.items():
            if list_name not in lists and _joins(scope, list_name, restarts=found.restarts, port=found.port):
                yield Operation(kind=Kind.CONNECT, container=name, network=network)


def _disconnect(scope: Scope) -> _Found:
    for name, found in scope.containers.items():
        for network in sorted(found.networks & set(scope.networks)):
            if len(found.networks) > 1:  # without any network, Docker connects it to the one that it was made on
                yield Operation(kind=Kind.DISCONNECT, container=name, network=network)


def _create_network(scope: Scope) -> _Found:
    """Yield a network of each list that has the fewest: removals are rare, and every list is to be used."""
    counts = Counter(scope.world.networks.values())
    open_ = [name for name in scope.lists if name not in (*scope.closed, HUNG, POOL)]
    if sum(counts.values()) - counts[HUNG] - counts[POOL] < _MOST_NETWORKS:
        fewest = min((counts[name] for name in open_), default=0)
        for list_name in open_:
            if counts[list_name] == fewest:
                yield Operation(kind=Kind.CREATE_NETWORK, network=f"n{scope.new}", list=list_name)


def _remove_network(scope: Scope) -> _Found:
    # another operation of the round may connect a container to a network, or disconnect it
    if any(name in scope.world.containers or name.startswith("c") for name in scope.taken):
        return
    for network in scope.networks:
        needed = any(network in _needs(found) for found in scope.world.containers.values())
        if not needed or scope.world.running_on(network):
            yield Operation(kind=Kind.REMOVE_NETWORK, network=network)


def _needs(container: Container) -> frozenset[str]:
    """Return the networks without which a container does not start."""
    return container.networks | ({container.home} if container.home else frozenset())


_POSSIBLE: Final[Mapping[Kind, Callable[[Scope], _Found]]] = {
    Kind.RUN: _run(Kind.RUN),
    Kind.PARTNER: _partner,
    Kind.CREATE: _run(Kind.CREATE),
    Kind.START: _of_containers(Kind.START, running=False),
    Kind.STOP: _of_containers(Kind.STOP, running=True),
    Kind.RESTART: _of_containers(Kind.RESTART, running=True),
    Kind.KILL: _of_containers(Kind.KILL, running=True),
    Kind.CRASH: _of_containers(Kind.CRASH, running=True),
    Kind.REMOVE: _of_containers(Kind.REMOVE, running=None),
    Kind.UPDATE: _update,
    Kind.CONNECT: _connect,
    Kind.DISCONNECT: _disconnect,
    Kind.CREATE_NETWORK: _create_network,
    Kind.REMOVE_NETWORK: _remove_network,
}
