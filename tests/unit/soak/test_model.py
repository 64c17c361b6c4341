# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The world that the model expects after each operation, and what it accepts after an interrupted one."""

import pytest

from tests.soak.lists import CANDIDATES
from tests.soak.model import Container, World
from tests.soak.operations import Kind, Operation

LAN, LAN6, AIR = "n1", "n2", "n3"


def container(*networks: str, running: bool = True, restarts: bool = False) -> Container:
    """Return a container whose first network is its home."""
    return Container(home=networks[0], networks=frozenset(networks), running=running, restarts=restarts)


WORLD = World(
    containers={
        "up": container(LAN),
        "down": container(LAN, AIR, running=False),
        "always": container(AIR, restarts=True),
    },
    networks={LAN: "lan", LAN6: "lan6", AIR: "air6"},
)


def test_run_and_create_add_a_container() -> None:
    """`run` starts it, `create` does not."""
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
        (Kind.UPDATE, "up", True),
        (Kind.STOP, "up", False),
        (Kind.KILL, "always", False),
        (Kind.CRASH, "up", False),
        (Kind.CRASH, "always", True),
    ],
)
def test_starts_and_stops(kind: Kind, name: str, *, running: bool) -> None:
    """Docker restarts a container with a policy that exited by itself."""
    assert WORLD.after(Operation(kind=kind, container=name)).containers[name].running is running


def test_connect_and_disconnect_change_the_networks() -> None:
    """Containers need not run for that; the network of their creation stays their home."""
    connected = WORLD.after(Operation(kind=Kind.CONNECT, container="up", network=LAN6))
    assert connected.containers["up"].networks == {LAN, LAN6}
    left = connected.after(Operation(kind=Kind.DISCONNECT, container="up", network=LAN)).containers["up"]
    assert (left.networks, left.home) == (frozenset({LAN6}), LAN)


def test_a_network_in_use_is_not_removed() -> None:
    """Only running containers keep it; the rejected operation changes nothing."""
    in_use = Operation(kind=Kind.REMOVE_NETWORK, network=LAN)
    assert WORLD.is_refused(in_use)
    assert WORLD.after(in_use) == WORLD
    free = WORLD.after(Operation(kind=Kind.REMOVE, container="up"))
    assert LAN not in free.after(in_use).networks


def test_a_start_on_a_network_whose_plugins_hang_fails() -> None:
    """The container is made, and stays down."""
    world = WORLD.after(Operation(kind=Kind.CREATE_NETWORK, network="h1", list="hung"))
    run = Operation(kind=Kind.RUN, container="new", network="h1")
    after = world.after(run)
    start = Operation(kind=Kind.START, container="new")
    assert after.containers["new"] == container("h1", running=False)
    assert world.hangs(run)
    assert after.hangs(start)
    assert after.after(start) == after
    assert not after.hangs(Operation(kind=Kind.START, container="down"))
    assert not after.hangs(Operation(kind=Kind.REMOVE, container="new"))


def test_a_partner_shares_the_network_of_another_container() -> None:
    """It is on no network itself, and runs on when the other one ends."""
    world = WORLD.after(Operation(kind=Kind.PARTNER, container="new", partner="up"))
    assert world.containers["new"] == Container(home="", networks=frozenset(), running=True, partner="up")
    assert (world.has_own_network("up"), world.has_own_network("new")) == (True, False)
    assert world.running == {"up", "always"}
    assert world.after(Operation(kind=Kind.REMOVE, container="up")).containers["new"].running


def test_the_lists_that_an_operation_concerns() -> None:
    """Those of its networks, of its container's, and of the container whose network it shares."""
    assert WORLD.lists_for(Operation(kind=Kind.RUN, container="new", network=LAN, others=(AIR,))) == {"lan", "air6"}
    assert WORLD.lists_for(Operation(kind=Kind.CONNECT, container="up", network=LAN6)) == {"lan", "lan6"}
    assert WORLD.lists_for(Operation(kind=Kind.PARTNER, container="new", partner="down")) == {"lan", "air6"}


def test_a_chosen_mac_is_that_of_the_first_network() -> None:
    """A container that has left it has another one, also if it comes back."""
    world = WORLD.after(Operation(kind=Kind.RUN, container="new", network=AIR, mac="02:00:00:00:00:07", others=(LAN,)))
    assert world.containers["new"].mac == "02:00:00:00:00:07"
    for networks, mac in ({AIR}, "02:00:00:00:00:07"), ({LAN}, None):  # as Docker shows them after a kill
        assert world.containers["new"].on(frozenset(networks), running=True).mac == mac
    left = world.after(Operation(kind=Kind.DISCONNECT, container="new", network=AIR))
    assert left.after(Operation(kind=Kind.CONNECT, container="new", network=AIR)).containers["new"].mac is None


def test_killing_dockerd_stops_containers() -> None:
    """Without live restore all containers stop; a restart policy also starts those that were stopped before."""
    stopped = WORLD.after(Operation(kind=Kind.STOP, container="always"))
    found = stopped.after_restart_of_docker().containers
    assert {name: one.running for name, one in found.items()} == {"up": False, "down": False, "always": True}


def test_the_gateway_network() -> None:
    """A network with both address families comes first, then the names decide."""
    world = World(
        containers={"both": container(LAN, LAN6), "names": container(LAN, "n0"), "none": container(LAN)},
        networks={LAN: "lan", LAN6: "lan6", "n0": "wire"},
    )
    assert [world.gateway_of(name) for name in ("both", "names", "none")] == [LAN6, "n0", LAN]


@pytest.mark.parametrize("shape", [{LAN}, {LAN, LAN6}])
def test_an_interrupted_connect(shape: set[str]) -> None:
    """The container may be connected or not."""
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
def test_impossible_results_of_an_interrupted_operation(operation: Operation, shape: set[str] | None) -> None:
    """Docker would have lost or invented something; and a network in use is never removed."""
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
def test_an_interrupted_creation_or_removal(operation: Operation) -> None:
    """The object may exist completely, or not at all."""
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
def test_addresses_that_an_operation_can_use(operation: Operation, wants: dict[str, frozenset[str]]) -> None:
    """Of a list with few addresses it is any, or the requested one; only starting an endpoint needs one."""
    assert FEW.wants(operation) == wants


@pytest.mark.parametrize("shape", [None, set(), {LAN}, {LAN, AIR}])
def test_an_interrupted_update(shape: set[str] | None) -> None:
    """The old container, none, or the new one, on some of its networks."""
    operation = Operation(kind=Kind.UPDATE, container="down", network=LAN, others=(AIR,))
    assert WORLD.why_impossible(operation, None if shape is None else frozenset(shape)) is None


@pytest.mark.parametrize(("shape", "is_possible"), [(set(), True), ({LAN}, True), ({LAN, LAN6}, True), ({LAN6}, False)])
def test_an_interrupted_run_with_several_networks(shape: set[str], *, is_possible: bool) -> None:
    """Dockerd stores the container without networks, then connects them one after another."""
    operation = Operation(kind=Kind.RUN, container="new", network=LAN, others=(LAN6, AIR))
    assert (WORLD.why_impossible(operation, frozenset(shape)) is None) is is_possible
