# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Random rounds from a seed; pure. The possible operations of a round depend only on the world."""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from tests.soak.lists import CANDIDATES, CHOSEN, docker_pool
from tests.soak.model import Container, World
from tests.soak.operations import Kill, Kind, Operation, Round

__all__ = ["Generator"]

_MOST_CONTAINERS: Final = 9
_MOST_NETWORKS: Final = 9
_MOST_AT_ONCE: Final = 4
_MOST_AT_START: Final = 3
"""How many networks a container is made on."""

_LONGEST_DELAY_S: Final = 0.6
_MOST_PLUGINS: Final = 8
"""The plugin to kill in a round is one of this many; the first ones are more likely, as many rounds have few."""

_FIRST_PORT: Final = 20_000
_PORTS: Final = 10_000
"""Below the kernel's ephemeral ports, and so many that none is used again soon."""

_WEIGHTS: Final[Mapping[Kind, int]] = {
    Kind.RUN: 9,
    Kind.CREATE: 2,
    Kind.START: 6,
    Kind.STOP: 4,
    Kind.RESTART: 4,
    Kind.KILL: 2,
    Kind.CRASH: 3,
    Kind.REMOVE: 5,
    Kind.CONNECT: 9,
    Kind.DISCONNECT: 6,
    Kind.CREATE_NETWORK: 4,
    Kind.REMOVE_NETWORK: 4,
}
_KILLS: Final[Mapping[Kill, int]] = {Kill.DAEMON: 5, Kill.PLUGIN: 5, Kill.DOCKERD: 3, Kill.BOTH: 1}


class Generator:
    """Makes rounds.

    Each round has its own random numbers, so that a different outcome of one round does not change all that follow.

    Args:
        seed: The seed of the random numbers.
        lists: The network configuration lists.
        port_publisher: The lists that can publish ports.
        kill_share: The share of rounds in which something is killed, 0 to 1.
    """

    def __init__(self, seed: int, lists: Sequence[str], port_publisher: Collection[str], kill_share: float) -> None:
        self._seed = seed
        self._lists = tuple(lists)
        self._port_publisher = port_publisher
        self._kill_share = kill_share

    def next(self, number: int, world: World) -> Round:
        """Return the round of this number, for the world before it."""
        rng = random.Random(f"{self._seed}/{number}")  # noqa: S311  # it must be repeatable, not secret
        operations: list[Operation] = []
        for position in range(rng.choice((1, 1, 2, 2, 3, _MOST_AT_ONCE))):
            operation = _choose(rng, self._scope(world, operations, number, position))
            if operation is not None:
                operations.append(operation)
        kill = rng.choices(list(_KILLS), list(_KILLS.values()))[0] if rng.random() < self._kill_share else None
        return Round(
            operations=tuple(operations),
            kill=kill,
            delay_s=rng.uniform(0, _LONGEST_DELAY_S),
            plugin=min(rng.randrange(_MOST_PLUGINS), rng.randrange(_MOST_PLUGINS)),
        )

    def _scope(self, world: World, before: Sequence[Operation], number: int, position: int) -> "_Scope":
        taken = frozenset(operation.writes for operation in before)
        return _Scope(
            world=world,
            containers={name: found for name, found in sorted(world.containers.items()) if name not in taken},
            networks={name: found for name, found in sorted(world.networks.items()) if name not in taken},
            taken=taken,
            closed=frozenset(name for name in (*world.networks.values(), *_lists(before)) if docker_pool(name)),
            lists=self._lists,
            port_publisher=self._port_publisher,
            new=f"{number}{'abcd'[position]}",
            port=_FIRST_PORT + (number * _MOST_AT_ONCE + position) % _PORTS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
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


_Found = Iterator[Operation]


def _lists(operations: Iterable[Operation]) -> Iterator[str]:
    """Return the lists of the networks that operations make."""
    return (operation.list for operation in operations if operation.list is not None)


def _choose(rng: random.Random, scope: _Scope) -> Operation | None:
    kinds = list(_WEIGHTS)
    while kinds:
        kind = rng.choices(kinds, [_WEIGHTS[kind] for kind in kinds])[0]
        possible = list(_POSSIBLE[kind](scope))
        if possible:
            return rng.choice(possible)
        kinds.remove(kind)
    return None


def _run(kind: Kind) -> Callable[[_Scope], _Found]:
    def find(scope: _Scope) -> _Found:
        if len(scope.world.containers) >= _MOST_CONTAINERS:
            return
        for network, list_name in scope.networks.items():
            ports = (None, scope.port) if list_name in scope.port_publisher else (None,)
            policies = (False, True) if kind is Kind.RUN and list_name not in CANDIDATES else (False,)
            addresses = CANDIDATES[list_name] if list_name in CHOSEN else (None,)
            for port, restarts, address in product(ports, policies, addresses):
                first = Operation(
                    kind=kind,
                    container=f"c{scope.new}",
                    network=network,
                    restarts=restarts,
                    port=port,
                    address=address,
                )
                others = _others(scope, first)
                yield first
                if others:
                    yield replace(first, others=others)

    return find


def _others(scope: _Scope, first: Operation) -> tuple[str, ...]:
    """Return at most two further networks for a new container, each of another list."""
    assert first.network is not None
    found = {scope.networks[first.network]: first.network}
    for network, list_name in scope.networks.items():
        if len(found) < _MOST_AT_START and _joins(scope, list_name, restarts=first.restarts, port=first.port):
            found.setdefault(list_name, network)
    return tuple(network for network in found.values() if network != first.network)


def _joins(scope: _Scope, list_name: str, *, restarts: bool, port: int | None) -> bool:
    """Return whether a container may be connected to a network of a list after its creation.

    With a restart policy it must not need an address of a small pool: Docker tries a restart once, at any time.
    """
    if list_name in CHOSEN or (restarts and list_name in CANDIDATES):
        return False
    return port is None or list_name in scope.port_publisher


def _of_containers(kind: Kind, *, running: bool | None) -> Callable[[_Scope], _Found]:
    def find(scope: _Scope) -> _Found:
        for name, found in scope.containers.items():
            # a start needs all networks of the container
            if (running is None or found.running == running) and _needs(found) <= set(scope.networks):
                yield Operation(kind=kind, container=name)

    return find


def _connect(scope: _Scope) -> _Found:
    for name, found in scope.containers.items():
        lists = scope.world.lists_of(name)  # two networks of one list would give a container two links in one subnet
        for network, list_name in scope.networks.items():
            if list_name not in lists and _joins(scope, list_name, restarts=found.restarts, port=found.port):
                yield Operation(kind=Kind.CONNECT, container=name, network=network)


def _disconnect(scope: _Scope) -> _Found:
    for name, found in scope.containers.items():
        for network in sorted(found.networks & set(scope.networks)):
            if len(found.networks) > 1:  # without any network, Docker connects it to the one that it was made on
                yield Operation(kind=Kind.DISCONNECT, container=name, network=network)


def _create_network(scope: _Scope) -> _Found:
    if len(scope.world.networks) < _MOST_NETWORKS:
        for list_name in scope.lists:
            if list_name in scope.closed:
                continue
            yield Operation(kind=Kind.CREATE_NETWORK, network=f"n{scope.new}", list=list_name)


def _remove_network(scope: _Scope) -> _Found:
    # another operation of the round may connect a container to a network, or disconnect it
    if any(name in scope.world.containers or name.startswith("c") for name in scope.taken):
        return
    for network in scope.networks:
        needed = any(network in _needs(found) for found in scope.world.containers.values())
        if not needed or scope.world.running_on(network):
            yield Operation(kind=Kind.REMOVE_NETWORK, network=network)


def _needs(container: Container) -> frozenset[str]:
    """Return the networks without which a container does not start."""
    return container.networks | {container.home}


_POSSIBLE: Final[Mapping[Kind, Callable[[_Scope], _Found]]] = {
    Kind.RUN: _run(Kind.RUN),
    Kind.CREATE: _run(Kind.CREATE),
    Kind.START: _of_containers(Kind.START, running=False),
    Kind.STOP: _of_containers(Kind.STOP, running=True),
    Kind.RESTART: _of_containers(Kind.RESTART, running=True),
    Kind.KILL: _of_containers(Kind.KILL, running=True),
    Kind.CRASH: _of_containers(Kind.CRASH, running=True),
    Kind.REMOVE: _of_containers(Kind.REMOVE, running=None),
    Kind.CONNECT: _connect,
    Kind.DISCONNECT: _disconnect,
    Kind.CREATE_NETWORK: _create_network,
    Kind.REMOVE_NETWORK: _remove_network,
}
