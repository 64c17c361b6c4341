# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the model refuses, and what it accepts after an interrupted operation."""

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


def test_a_network_in_use_is_not_removed() -> None:
    """Only running containers keep it; the rejected operation changes nothing."""
    in_use = Operation(kind=Kind.REMOVE_NETWORK, network=LAN)
    assert WORLD.is_refused(in_use)
    assert WORLD.after(in_use) == WORLD
    free = WORLD.after(Operation(kind=Kind.REMOVE, container="up"))
    assert LAN not in free.after(in_use).networks


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


@pytest.mark.parametrize(("shape", "is_possible"), [(set(), True), ({LAN}, True), ({LAN, LAN6}, True), ({LAN6}, False)])
def test_an_interrupted_run_with_several_networks(shape: set[str], *, is_possible: bool) -> None:
    """Dockerd stores the container without networks, then connects them one after another."""
    operation = Operation(kind=Kind.RUN, container="new", network=LAN, others=(LAN6, AIR))
    assert (WORLD.why_impossible(operation, frozenset(shape)) is None) is is_possible
