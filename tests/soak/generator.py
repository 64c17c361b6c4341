# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Random rounds from a seed; pure. The possible operations of a round depend only on the world."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tests.soak.choices import MOST_CONTAINERS, Scope, choose
from tests.soak.lists import HUNG, POOL, POOL_MOST, SINGLE
from tests.soak.model import World
from tests.soak.operations import Kill, Kind, Operation, Round
from tests.soak.trouble import ROUNDS, Trouble

MOST_AT_ONCE: Final = 4
"""How many operations a round has, without those of a kind of trouble."""

_LONGEST_DELAY_S: Final = 0.6
_MOST_PLUGINS: Final = 8
"""The plugin to kill in a round is one of this many; the first ones are more likely, as many rounds have few."""

_FIRST_PORT: Final = 20_000
_PORTS: Final = 10_000
"""Below the kernel's ephemeral ports, and so many that none is used again soon."""

_KILLS: Final[Mapping[Kill, int]] = {Kill.DAEMON: 5, Kill.PLUGIN: 5, Kill.DOCKERD: 3, Kill.BOTH: 1}
_TROUBLE_SHARE: Final = 0.15
"""The share of rounds with a kind of trouble, if all kinds are chosen."""


class Generator:
    """Makes rounds.

    Each round has its own random numbers, so that a different outcome of one round does not change all that follow. The
    kind of trouble is chosen with further ones, so that the rounds of other kinds stay the same without it.

    Args:
        seed: The seed of the random numbers.
        lists: The network configuration lists.
        port_publisher: The lists that can publish ports.
        kill_share: The share of rounds in which something is killed, 0 to 1.
        troubles: The kinds of trouble; their lists are among `lists`.
        burst: How many operations are many at once: twice the number of plugins that may run.
    """

    def __init__(
        self,
        seed: int,
        lists: Sequence[str],
        port_publisher: Collection[str],
        kill_share: float,
        *,
        troubles: Collection[Trouble] = (),
        burst: int = 8,
    ) -> None:
        self._seed = seed
        self._lists = tuple(lists)
        self._port_publisher = port_publisher
        self._kill_share = kill_share
        self._troubles = frozenset(troubles)
        self._burst = burst

    def next(self, number: int, world: World) -> Round:
        """Return the round of this number, for the world before it."""
        rng = random.Random(f"{self._seed}/{number}")  # noqa: S311  # it must be repeatable, not secret
        match self._trouble(number):
            case Trouble.HANGING:
                return self._hanging(rng, number, world)
            case Trouble.BURST:
                return self._many(rng, number, world)
            case Trouble.REBOOT:
                return self._reboot(number, world)
            case trouble:
                return self._usual(rng, number, world, stops=trouble is Trouble.STOP)

    def _trouble(self, number: int) -> Trouble | None:
        rng = random.Random(f"{self._seed}/{number}/trouble")  # noqa: S311  # likewise
        if rng.random() > _TROUBLE_SHARE:
            return None
        trouble = rng.choices(list(ROUNDS), list(ROUNDS.values()))[0]
        return trouble if trouble in self._troubles else None

    def _usual(self, rng: random.Random, number: int, world: World, *, stops: bool) -> Round:
        """Some operations, and what is killed meanwhile, or stopped."""
        operations = self._choose(rng, number, world, (), count=rng.choice((1, 1, 2, 2, 3, MOST_AT_ONCE)))
        kill = rng.choices(list(_KILLS), list(_KILLS.values()))[0] if rng.random() < self._kill_share else None
        if stops:
            kill = rng.choice((Kill.STOP_DAEMON, Kill.STOP_PLUGIN))
        return Round(
            operations=operations,
            kill=kill,
            delay_s=rng.uniform(0, _LONGEST_DELAY_S),
            plugin=min(rng.randrange(_MOST_PLUGINS), rng.randrange(_MOST_PLUGINS)),
        )

    def _hanging(self, rng: random.Random, number: int, world: World) -> Round:
        """Starts whose plugins hang, and then usual operations beside them."""
        networks = _networks_of(world, HUNG)
        if len(networks) < self._burst:  # dockerd makes one endpoint of a network after the other
            return _make_networks(number, HUNG, self._burst - len(networks))
        wanted = rng.choice((1, self._burst))
        down = [Operation(kind=Kind.START, container=name) for name in sorted(world.on_list(HUNG))][:wanted]
        runs = (_run(number, position, networks[position]) for position in range(wanted - len(down)))
        hang = [*down, *runs]
        return Round(operations=self._choose(rng, number, world, hang, count=MOST_AT_ONCE), first=wanted)

    def _many(self, rng: random.Random, number: int, world: World) -> Round:
        """Many starts at once, or a restart of all containers."""
        if len(world.running) > MOST_AT_ONCE and rng.random() < 0.5:
            restarts = (Operation(kind=Kind.RESTART, container=name) for name in sorted(world.running))
            return Round(operations=tuple(restarts))
        return Round(operations=self._choose(rng, number, world, (), count=self._burst, kinds=(Kind.RUN,)))

    def _reboot(self, number: int, world: World) -> Round:
        """Containers with a restart policy until nearly all addresses of a pool are in use, and then a reboot."""
        networks = _networks_of(world, POOL)
        if not networks:
            return _make_networks(number, POOL, 1)
        missing = range(POOL_MOST - len(world.on_list(POOL)))
        runs = (_run(number, position, networks[0], restarts=True) for position in missing)
        return Round(operations=tuple(runs), kill=Kill.REBOOT)

    def _choose(
        self,
        rng: random.Random,
        number: int,
        world: World,
        first: Sequence[Operation],
        *,
        count: int,
        kinds: Collection[Kind] | None = None,
    ) -> tuple[Operation, ...]:
        """Return `first` and as many further operations as are possible, `count` at most; of these kinds only."""
        operations = [*first]
        for position in range(len(first), len(first) + count):
            scope = self._scope(world, operations, number, position)
            if kinds is not None:
                scope = replace(scope, port_publisher=(), most=MOST_CONTAINERS + count)
            operation = choose(rng, scope) if kinds is None else choose(rng, scope, kinds)
            if operation is not None:
                operations.append(operation)
        return tuple(operations)

    def _scope(self, world: World, before: Sequence[Operation], number: int, position: int) -> Scope:
        taken = frozenset(name for operation in before for name in (operation.writes, operation.partner) if name)
        made = (operation.list for operation in before if operation.list is not None)
        return Scope(
            world=world,
            containers={name: found for name, found in sorted(world.containers.items()) if name not in taken},
            networks={name: found for name, found in sorted(world.networks.items()) if name not in taken},
            taken=taken,
            closed=frozenset(name for name in (*world.networks.values(), *made) if name in SINGLE),
            lists=self._lists,
            port_publisher=self._port_publisher if position < MOST_AT_ONCE else (),
            new=_name(number, position),
            port=_FIRST_PORT + (number * MOST_AT_ONCE + position) % _PORTS,
            mac=f"02:50:{number >> 8 & 255:02x}:{number & 255:02x}:00:{position:02x}"
            if self._has(Trouble.MAC)
            else None,
            partners=self._has(Trouble.PARTNER),
            updates=self._has(Trouble.UPDATE),
        )

    def _has(self, trouble: Trouble) -> bool:
        return trouble in self._troubles


def _name(number: int, position: int) -> str:
    """Return the name of what a round makes, after one letter."""
    return f"{number}{'abcd'[position] if position < MOST_AT_ONCE else f'e{position}'}"


def _run(number: int, position: int, network: str, *, restarts: bool = False) -> Operation:
    return Operation(kind=Kind.RUN, container=f"c{_name(number, position)}", network=network, restarts=restarts)


def _make_networks(number: int, list_name: str, count: int) -> Round:
    names = (f"n{_name(number, position)}" for position in range(count))
    return Round(operations=tuple(Operation(kind=Kind.CREATE_NETWORK, network=name, list=list_name) for name in names))


def _networks_of(world: World, list_name: str) -> list[str]:
    return [name for name, found in sorted(world.networks.items()) if found == list_name]
