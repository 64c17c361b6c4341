# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Rounds from a seed are reproducible, cover all kinds, and contain nothing that must fail by itself."""

from collections import Counter
from collections.abc import Iterator

from tests.soak.generator import Generator
from tests.soak.lists import LISTS, PUBLISHING
from tests.soak.model import World
from tests.soak.operations import Kill, Kind, Round

ROUNDS = 600


def rounds(seed: int) -> Iterator[tuple[World, Round]]:
    """Return rounds, each with the world before it, as if every operation succeeded."""
    generator = Generator(seed, tuple(LISTS), PUBLISHING, 0.4)
    world = World()
    for number in range(1, ROUNDS):
        round_ = generator.next(number, world)
        yield world, round_
        for operation in round_.operations:
            world = world.after(operation)


def test_a_seed_gives_the_same_rounds() -> None:
    """Operations, kills and moments of a seed are always the same."""
    assert list(rounds(7)) == list(rounds(7))
    assert list(rounds(7)) != list(rounds(8))


def test_a_round_depends_on_world_and_number_alone() -> None:
    """Earlier rounds do not influence it, so that a seed can be continued after a kill."""
    *_, (world, last) = rounds(7)
    assert Generator(7, tuple(LISTS), PUBLISHING, 0.4).next(ROUNDS - 1, world) == last


def test_all_kinds_occur() -> None:
    """Every operation, kill and list occurs, and so do published ports and the removal of networks in use."""
    found = [*rounds(7), *rounds(8), *rounds(9)]
    operations = [operation for _, round_ in found for operation in round_.operations]
    assert {operation.kind for operation in operations} == set(Kind)
    assert {round_.kill for _, round_ in found} == {None, *Kill}
    assert {operation.list for operation in operations} == {None, *LISTS}
    for made_with in ("port", "address", "others"):
        assert {bool(getattr(operation, made_with)) for operation in operations if operation.kind is Kind.RUN} == {
            True,
            False,
        }
    refused = [operation for world, round_ in found for operation in round_.operations if world.is_refused(operation)]
    assert 0 < len(refused) < len(operations) / 20
    kills = sum(round_.kill is not None for _, round_ in found)
    assert 0.3 < kills / len(found) < 0.5


def test_operations_of_a_round_are_independent() -> None:
    """No operation changes what another changes or needs, so that the model knows the result in any order."""
    for world, round_ in rounds(7):
        changed = Counter(operation.writes for operation in round_.operations)
        assert set(changed.values()) <= {1}
        for operation in round_.operations:
            container = world.containers.get(operation.container or "")
            needed = {operation.network}
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
