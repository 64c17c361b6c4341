# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the model says should exist after each operation, and what it holds for possible after one that broke off."""

import pytest

from tests.soak.lists import CANDIDATES
from tests.soak.model import Container, World
from tests.soak.operations import Kind, Operation

LAN, LAN6, AIR = "n1", "n2", "n3"


def container(*networks: str, running: bool = True, restarts: bool = False) -> Container:
    """Give a container that was made on the first of its networks."""
    return Container(home=networks[0], networks=frozenset(networks), running=running, restarts=restarts)


WORLD = World(
    containers={
        "up": container(LAN),
        "down": container(LAN, AIR, running=False),
        "always": container(AIR, restarts=True),
    },
    networks={LAN: "lan", LAN6: "lan6", AIR: "air6"},
)


def test_a_new_container() -> None:
    """It runs, or was only made."""
    for kind in (Kind.RUN, Kind.CREATE):
        after = WORLD.after(Operation(kind=kind, container="new", network=LAN, restarts=True, port=20_000))
        assert after.containers["new"] == Container(
            home=LAN, networks=frozenset({LAN}), running=kind is Kind.RUN, restarts=True, port=20_000
        )


@pytest.mark.parametrize(
    ("kind", "name", "running"),
    [
        (Kind.START, "down", True),
        (Kind.RESTART, "up", True),
        (Kind.STOP, "up", False),
        (Kind.KILL, "always", False),
        (Kind.CRASH, "up", False),
        (Kind.CRASH, "always", True),
    ],
)
def test_starts_and_ends(kind: Kind, name: str, *, running: bool) -> None:
    """Docker starts again what has a policy and ended by itself."""
    assert WORLD.after(Operation(kind=kind, container=name)).containers[name].running is running


def test_connections() -> None:
    """They are a container's whether it runs or not; the network that it was made on stays its home."""
    connected = WORLD.after(Operation(kind=Kind.CONNECT, container="up", network=LAN6))
    assert connected.containers["up"].networks == {LAN, LAN6}
    left = connected.after(Operation(kind=Kind.DISCONNECT, container="up", network=LAN)).containers["up"]
    assert (left.networks, left.home) == (frozenset({LAN6}), LAN)


def test_a_network_in_use_is_not_removed() -> None:
    """Only running containers keep it; the world stays as it is."""
    in_use = Operation(kind=Kind.REMOVE_NETWORK, network=LAN)
    assert WORLD.is_refused(in_use)
    assert WORLD.after(in_use) == WORLD
    free = WORLD.after(Operation(kind=Kind.REMOVE, container="up"))
    assert LAN not in free.after(in_use).networks


def test_dockerd_was_killed() -> None:
    """Without live restore all containers end; a policy starts also those that were stopped."""
    stopped = WORLD.after(Operation(kind=Kind.STOP, container="always"))
    found = stopped.after_restart_of_docker().containers
    assert {name: one.running for name, one in found.items()} == {"up": False, "down": False, "always": True}


def test_the_gateway() -> None:
    """One with both families comes first, and then the names decide."""
    world = World(
        containers={"both": container(LAN, LAN6), "names": container(LAN, "n0"), "none": container(LAN)},
        networks={LAN: "lan", LAN6: "lan6", "n0": "wire"},
    )
    assert [world.gateway_of(name) for name in ("both", "names", "none")] == [LAN6, "n0", LAN]


@pytest.mark.parametrize("shape", [{LAN}, {LAN, LAN6}])
def test_broken_off_in_the_middle_of_connect(shape: set[str]) -> None:
    """The container is connected or not."""
    operation = Operation(kind=Kind.CONNECT, container="up", network=LAN6)
    assert WORLD.why_impossible(operation, frozenset(shape)) is None


@pytest.mark.parametrize(
    ("operation", "shape"),
    [
        (Operation(kind=Kind.CONNECT, container="up", network=LAN6), {LAN6}),
        (Operation(kind=Kind.CONNECT, container="up", network=LAN6), None),
        (Operation(kind=Kind.STOP, container="up"), set()),
        (Operation(kind=Kind.RUN, container="new", network=LAN), {LAN, AIR}),
        (Operation(kind=Kind.REMOVE_NETWORK, network=LAN), None),
    ],
)
def test_what_cannot_come_of_an_operation(operation: Operation, shape: set[str] | None) -> None:
    """Docker has lost or invented something; a network in use is not removed even half."""
    assert WORLD.why_impossible(operation, None if shape is None else frozenset(shape))


@pytest.mark.parametrize(
    "operation",
    [
        Operation(kind=Kind.RUN, container="new", network=LAN),
        Operation(kind=Kind.REMOVE, container="up"),
        Operation(kind=Kind.CREATE_NETWORK, network="n9", list="lan"),
        Operation(kind=Kind.REMOVE_NETWORK, network=LAN6),
    ],
    ids=str,
)
def test_what_is_made_or_removed_may_be_there_or_not(operation: Operation) -> None:
    """Either is possible, as long as it is whole."""
    whole = {LAN} if operation.container else {operation.writes}
    assert WORLD.why_impossible(operation, frozenset(whole)) is None
    assert WORLD.why_impossible(operation, None) is None


FEW = World(
    containers={
        "up": container("m1"),
        "down": Container(home="m2", networks=frozenset({"m1", "m2"}), running=False, address="10.82.8.11"),
    },
    networks={"m1": "again", "m2": "static", LAN: "lan"},
)
AGAIN = frozenset(CANDIDATES["again"])


@pytest.mark.parametrize(
    ("operation", "wants"),
    [
        (Operation(kind=Kind.RUN, container="new", network=LAN, others=("m1",)), {"again": AGAIN}),
        (
            Operation(kind=Kind.RUN, container="new", network="m2", address="10.82.8.10"),
            {"static": frozenset({"10.82.8.10"})},
        ),
        (Operation(kind=Kind.START, container="down"), {"again": AGAIN, "static": frozenset({"10.82.8.11"})}),
        (Operation(kind=Kind.RESTART, container="up"), {"again": AGAIN}),
        (Operation(kind=Kind.CONNECT, container="up", network=LAN), {}),
        (Operation(kind=Kind.CONNECT, container="down", network="m1"), {}),
        (Operation(kind=Kind.CREATE, container="new", network="m1"), {}),
        (Operation(kind=Kind.STOP, container="up"), {}),
    ],
)
def test_addresses_that_would_do(operation: Operation, wants: dict[str, frozenset[str]]) -> None:
    """Of lists with few addresses any, or the one that was chosen; only what starts an endpoint needs one."""
    assert FEW.wants(operation) == wants


@pytest.mark.parametrize(("shape", "is_possible"), [(set(), True), ({LAN}, True), ({LAN, LAN6}, True), ({LAN6}, False)])
def test_broken_off_with_several_networks(shape: set[str], *, is_possible: bool) -> None:
    """A container is connected to its networks one after the other, after dockerd has stored it without any."""
    operation = Operation(kind=Kind.RUN, container="new", network=LAN, others=(LAN6, AIR))
    assert (WORLD.why_impossible(operation, frozenset(shape)) is None) is is_possible
