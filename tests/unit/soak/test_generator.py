# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Rounds from a seed are reproducible, cover all kinds, and contain nothing that must fail by itself."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

import pytest

from tests.soak.generator import MOST_AT_ONCE, Generator
from tests.soak.lists import HUNG, NAMES, OF_DOCKER, POOL, POOL_MOST, PUBLISHING, SINGLE
from tests.soak.model import World
from tests.soak.operations import Kill, Kind, Round
from tests.soak.trouble import Trouble, with_lists

ROUNDS = 600
BURST = 12
STOPS = {Kill.STOP_DAEMON, Kill.STOP_PLUGIN}


def make_generator(seed: int, troubles: Collection[Trouble] = tuple(Trouble)) -> Generator:
    """Return a generator with these kinds of trouble."""
    return Generator(seed, with_lists(NAMES, troubles), PUBLISHING, 0.4, troubles=troubles, burst=BURST)


def play(seed: int, troubles: Collection[Trouble] = tuple(Trouble)) -> Iterator[tuple[World, Round]]:
    """Yield rounds, each with the world before it, as if every operation succeeded that can."""
    generator = make_generator(seed, troubles)
    world = World()
    for number in range(1, ROUNDS):
        round_ = generator.next(number, world)
        yield world, round_
        for operation in round_.operations:
            world = world.after(operation)
        if round_.kill is Kill.REBOOT:
            world = world.after_restart_of_docker()


@cache
def rounds(seed: int) -> tuple[tuple[World, Round], ...]:
    """Return the rounds of a seed with all kinds of trouble."""
    return tuple(play(seed))


def test_a_seed_gives_the_same_rounds() -> None:
    """Operations, kills and moments of a seed are always the same."""
    assert rounds(7) == tuple(play(7))
    assert rounds(7) != rounds(8)


def test_a_round_depends_on_world_and_number_alone() -> None:
    """Earlier rounds do not influence it, so that a seed can be continued after a kill."""
    *_, (world, last) = rounds(7)
    assert make_generator(7).next(ROUNDS - 1, world) == last


def test_all_kinds_occur() -> None:
    """Every operation, kill and list occurs, and so do published ports and the removal of networks in use."""
    found = [*rounds(7), *rounds(8), *rounds(9)]
    operations = [operation for _, round_ in found for operation in round_.operations]
    assert {operation.kind for operation in operations} == set(Kind)
    assert {round_.kill for _, round_ in found} == {None, *Kill}
    assert {operation.list for operation in operations} == {None, *NAMES}
    for made_with in ("port", "address", "others", "mac"):
        assert {bool(getattr(operation, made_with)) for operation in operations if operation.kind is Kind.RUN} == {
            True,
            False,
        }
    refused = [operation for world, round_ in found for operation in round_.operations if world.is_refused(operation)]
    assert 0 < len(refused) < len(operations) / 20
    kills = sum(round_.kill is not None for _, round_ in found)
    kills -= sum(round_.kill in {Kill.REBOOT, Kill.ROLLBACK} for _, round_ in found)
    assert 0.3 < kills / len(found) < 0.5


@pytest.mark.slow
def test_a_kind_of_trouble_can_be_left_out() -> None:
    """Without one kind nothing of it is left; without any, there are usual rounds and nothing else."""
    signs: Mapping[Trouble, Callable[[World, Round], bool]] = {
        Trouble.SLOW: lambda world, _: "slow" in world.networks.values(),
        Trouble.HANGING: lambda world, _: HUNG in world.networks.values(),
        Trouble.BURST: lambda _, found: (
            len({Kind.RUN, Kind.RESTART} & {one.kind for one in found.operations}) == 1
            and len(found.operations) > MOST_AT_ONCE
            and found.first == 0
            and found.kill is None
        ),
        Trouble.REBOOT: lambda _, found: found.kill is Kill.REBOOT,
        Trouble.ROLLBACK: lambda _, found: found.kill is Kill.ROLLBACK,
        Trouble.STOP: lambda _, found: found.kill in STOPS,
        Trouble.MAC: lambda world, _: any(one.mac for one in world.containers.values()),
        Trouble.PARTNER: lambda world, _: any(one.partner for one in world.containers.values()),
        Trouble.UPDATE: lambda _, found: any(one.kind is Kind.UPDATE for one in found.operations),
    }
    found = [*rounds(7), *rounds(8), *rounds(9)]
    for left_out, sign in signs.items():
        others = [trouble for trouble in Trouble if trouble is not left_out]
        assert any(sign(*one) for one in found), left_out
        assert not any(sign(*one) for one in play(7, others)), left_out
    assert not any(sign(*found) for found in play(7, ()) for sign in signs.values())


def test_hanging_starts_come_first() -> None:
    """All that hang start before the others, which use other networks; there are up to a whole burst of them."""
    found = [(world, round_) for seed in (7, 8) for world, round_ in rounds(seed)]
    for world, round_ in found:
        assert [world.hangs(operation) for operation in round_.operations] == [
            position < round_.first for position in range(len(round_.operations))
        ]
    assert {round_.first for _, round_ in found} == {0, 1, BURST}


def test_a_reboot_comes_when_a_pool_is_nearly_full() -> None:
    """Nine containers with a restart policy use the pool then, and there are never more."""
    for world, round_ in rounds(7):
        after = world
        for operation in round_.operations:
            after = after.after(operation)
        users = [after.containers[name] for name in after.on_list(POOL)]
        assert len(users) <= POOL_MOST
        if round_.kill is Kill.REBOOT:
            assert len(users) == POOL_MOST
            assert all(container.restarts for container in users)


def test_operations_of_a_round_are_independent() -> None:
    """No operation changes what another changes or needs, so that the model knows the result in any order."""
    for world, round_ in rounds(7):
        changed = Counter(operation.writes for operation in round_.operations)
        assert set(changed.values()) <= {1}
        for operation in round_.operations:
            container = world.containers.get(operation.container or "")
            needed = {operation.network, operation.partner}
            if container and operation.kind not in (Kind.CONNECT, Kind.DISCONNECT):  # they need no other network
                needed |= container.networks | {container.home}
            others = set(changed) - {operation.writes}
            assert not needed & others


def test_published_ports_are_unique_and_on_suitable_networks() -> None:
    """Otherwise Docker would reject the start of the container."""
    for world, _ in rounds(7):
        ports = [found.port for found in world.containers.values() if found.port is not None]
        assert len(ports) == len(set(ports))
        for name, found in world.containers.items():
            lists = world.lists_of(name)
            assert len(lists) == len(found.networks)  # twice on a list, it has two links in one subnet
            assert found.port is None or lists <= PUBLISHING


def test_no_requested_address_is_lost_by_a_rollback() -> None:
    """The older state might not have its record."""
    rolled_back = [world for seed in (7, 8, 9) for world, round_ in rounds(seed) if round_.kill is Kill.ROLLBACK]
    assert rolled_back
    assert not any(world.lists_of(name) & OF_DOCKER.keys() for world in rolled_back for name in world.running)


def test_pools_of_docker_do_not_overlap() -> None:
    """There is at most one network of each subnet that Docker knows."""
    for world, _ in rounds(7):
        networks = Counter(name for name in world.networks.values() if name in SINGLE)
        assert set(networks.values()) <= {1}
