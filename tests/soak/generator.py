# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Random rounds from a seed; pure. The possible operations of a round depend only on the world."""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from tests.soak.choices import Scope, choose
from tests.soak.lists import docker_pool
from tests.soak.model import World
from tests.soak.operations import Kill, Operation, Round

__all__ = ["Generator"]

_MOST_AT_ONCE: Final = 4

_LONGEST_DELAY_S: Final = 0.6
_MOST_PLUGINS: Final = 8
"""The plugin to kill in a round is one of this many; the first ones are more likely, as many rounds have few."""

_FIRST_PORT: Final = 20_000
_PORTS: Final = 10_000
"""Below the kernel's ephemeral ports, and so many that none is used again soon."""

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
            operation = choose(rng, self._scope(world, operations, number, position))
            if operation is not None:
                operations.append(operation)
        kill = rng.choices(list(_KILLS), list(_KILLS.values()))[0] if rng.random() < self._kill_share else None
        return Round(
            operations=tuple(operations),
            kill=kill,
            delay_s=rng.uniform(0, _LONGEST_DELAY_S),
            plugin=min(rng.randrange(_MOST_PLUGINS), rng.randrange(_MOST_PLUGINS)),
        )

    def _scope(self, world: World, before: Sequence[Operation], number: int, position: int) -> Scope:
        taken = frozenset(operation.writes for operation in before)
        return Scope(
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


def _lists(operations: Iterable[Operation]) -> Iterator[str]:
    """Return the lists of the networks that operations make."""
    return (operation.list for operation in operations if operation.list is not None)
