# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The comparison of model, Docker and machine reports every difference, and nothing else."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.soak.artifacts import Artifacts, Attachment, parse_addresses
from tests.soak.comparison import MachineView, Reservation, Sandbox, compare, compare_docker
from tests.soak.docker_view import DockerContainer, DockerNetwork, DockerView
from tests.soak.model import Container, World

ENDPOINT = "e" * 64
ADDRESSES = ("10.82.1.2", "fd82:1::2")
ARTIFACTS = {
    "lan6": Artifacts(
        rules=("ip nat :CNI-OF-ENDPOINT", "ip filter -A CNI-FORWARD -s ADDRESS-4/32 -j ACCEPT"),
        published=("ip nat :CNI-OF-ENDPOINT", "ip nat -A CNI-DN-OF-ENDPOINT --dport PORT -j DNAT"),
        links=("veth, master cni0",),
        families=2,
        files=("/run/cni/tuning/ENDPOINT_eth0.json",),
    )
}
WORLD = World(
    containers={
        "c1": Container(home="n1", networks=frozenset({"n1"}), running=True, port=20_001),
        "c2": Container(home="n1", networks=frozenset({"n1"}), running=False),
    },
    networks={"n1": "lan6"},
)
DOCKER = DockerView(
    containers={
        "c1": DockerContainer(state="running", endpoints={"n1": ENDPOINT}, addresses_on={"n1": ADDRESSES}, process=7),
        "c2": DockerContainer(state="exited", endpoints={"n1": "f" * 64}),
    },
    networks={"n1": DockerNetwork(id="1" * 64, endpoints={ENDPOINT: "c1"})},
)
_ATTACHMENT = Attachment(endpoint=ENDPOINT, list="lan6", addresses=parse_addresses(ADDRESSES), port=20_001)
SANDBOX = Sandbox(links={"eth0": ADDRESSES}, unreachable=(), answer="c1")
MACHINE = MachineView(
    sandboxes={"c1": SANDBOX},
    reservations=tuple(Reservation(list="lan6", address=address, endpoint=ENDPOINT) for address in ADDRESSES),
    rules=ARTIFACTS["lan6"].rules_of(_ATTACHMENT),
    links=Counter(ARTIFACTS["lan6"].links),
    staging=frozenset({ENDPOINT}),
    files=(f"/run/cni/tuning/{ENDPOINT}_eth0.json",),
    leftovers=(),
    network_records=frozenset({"1" * 64}),
    endpoint_records={ENDPOINT: "joined"},
)


def test_no_difference_is_reported_if_all_agree() -> None:
    """`compare` returns nothing for a consistent world, Docker and machine."""
    assert compare(WORLD, DOCKER, MACHINE, ARTIFACTS) == ()


def without_one(counter: Counter[str]) -> Counter[str]:
    """Return a counter with one element less."""
    return counter - Counter([next(iter(counter))])


UNOWNED = Reservation(list="lan6", address="10.82.1.9", endpoint="9" * 64)

DIFFERENCES: dict[str, tuple[Callable[[MachineView], MachineView], str]] = {
    "a rule is missing": (lambda view: replace(view, rules=without_one(view.rules)), "missing: rule "),
    "a rule is there twice": (lambda view: replace(view, rules=view.rules + view.rules), "too much: rule "),
    "a link is missing": (lambda view: replace(view, links=Counter()), "missing: link veth, master cni0"),
    "a link is left": (lambda view: replace(view, links=view.links + Counter(["ifb"])), "too much: link ifb"),
    "an address is reserved for no endpoint": (
        lambda view: replace(view, reservations=(*view.reservations, UNOWNED)),
        "too much: Reservation",
    ),
    "an address is not reserved": (
        lambda view: replace(view, reservations=view.reservations[:1]),
        f"endpoint {ENDPOINT} on lan6: reserved addresses ['10.82.1.2']",
    ),
    "a staging namespace is missing": (lambda view: replace(view, staging=frozenset()), "missing: staging namespace"),
    "a staging namespace is left": (
        lambda view: replace(view, staging=view.staging | {"9" * 64}),
        "too much: staging namespace",
    ),
    "a file is left": (lambda view: replace(view, files=(*view.files, "/run/cni/x")), "too much: file /run/cni/x"),
    "a file is missing": (lambda view: replace(view, files=()), f"missing: file /run/cni/tuning/{ENDPOINT}_eth0.json"),
    "a plugin is left": (lambda view: replace(view, leftovers=("/usr/lib/cni/x",)), "left: /usr/lib/cni/x"),
    "a record of a network is missing": (
        lambda view: replace(view, network_records=frozenset()),
        "missing: record of network",
    ),
    "a record is left": (
        lambda view: replace(view, endpoint_records={**view.endpoint_records, "9" * 64: "deleting"}),
        "too much: record of endpoint",
    ),
    "a record is in another phase": (
        lambda view: replace(view, endpoint_records={ENDPOINT: "ready"}),
        f"record of endpoint {ENDPOINT}: phase ready instead of joined",
    ),
    "the container has another address": (
        lambda view: replace(view, sandboxes={"c1": replace(SANDBOX, links={"eth0": ("10.82.1.3", ADDRESSES[1])})}),
        "too much: container c1: address in it 10.82.1.3",
    ),
    "the container has a link too many": (
        lambda view: replace(view, sandboxes={"c1": replace(SANDBOX, links={"eth0": ADDRESSES, "eth1": ()})}),
        "container c1: has links ['eth0', 'eth1'] on networks ['n1']",
    ),
    "the gateway is silent": (
        lambda view: replace(view, sandboxes={"c1": replace(SANDBOX, unreachable=("10.82.1.1",))}),
        "container c1: gateway 10.82.1.1 does not answer",
    ),
    "no container answers at the port": (
        lambda view: replace(view, sandboxes={"c1": replace(SANDBOX, answer="")}),
        "container c1: at its port 20001 answers no container",
    ),
    "another container answers at the port": (
        lambda view: replace(view, sandboxes={"c1": replace(SANDBOX, answer="c2")}),
        "container c1: at its port 20001 answers c2",
    ),
    "a running container has no sandbox": (lambda view: replace(view, sandboxes={}), "container c1: has no sandbox"),
}


@pytest.mark.parametrize("what", DIFFERENCES)
def test_each_difference_of_the_machine_is_reported(what: str) -> None:
    """The message begins with what differs."""
    change, expected = DIFFERENCES[what]
    found = compare(WORLD, DOCKER, change(MACHINE), ARTIFACTS)
    assert any(line.startswith(expected) for line in found), found


def changed(name: str, **changes: object) -> DockerView:
    """Return Docker's view with one container changed."""
    container = replace(DOCKER.containers[name], **changes)  # type: ignore[arg-type]  # names its fields
    return replace(DOCKER, containers={**DOCKER.containers, name: container})


@pytest.mark.parametrize(
    ("docker", "expected"),
    [
        (changed("c1", state="exited"), "container c1: should run, and is exited"),
        (changed("c2", state="running"), "container c2: should not run, and is running"),
        (changed("c1", endpoints={"n1": ""}), "container c1: has no endpoint on network n1"),
        (changed("c2", endpoints={}), "container c2: missing: network n1"),
        (replace(DOCKER, containers={"c1": DOCKER.containers["c1"]}), "missing: container c2"),
        (replace(DOCKER, networks={}), "missing: network n1"),
    ],
)
def test_each_difference_of_docker_is_reported(docker: DockerView, expected: str) -> None:
    """`compare_docker` reports it, and so does `compare`."""
    assert expected in compare_docker(WORLD, docker)
    assert expected in compare(WORLD, docker, MACHINE, ARTIFACTS)


def test_a_missing_address_in_docker_is_reported() -> None:
    """The addresses that Docker shows must be the reserved ones."""
    docker = changed("c1", addresses_on={"n1": ADDRESSES[:1]})
    assert compare(WORLD, docker, MACHINE, ARTIFACTS) == (f"missing: container c1: address at Docker {ADDRESSES[1]}",)


def test_an_unknown_endpoint_in_docker_is_reported() -> None:
    """A network with such an endpoint cannot be removed."""
    network = DockerNetwork(id="1" * 64, endpoints={ENDPOINT: "c1", "9" * 64: "c2"})
    found = compare(WORLD, replace(DOCKER, networks={"n1": network}), MACHINE, ARTIFACTS)
    assert found == (f"too much: endpoint of Docker's network {'9' * 64}",)


def test_a_container_with_a_running_operation_is_not_compared() -> None:
    """Other containers are compared."""
    docker = changed("c1", state="exited")
    assert compare_docker(WORLD, docker, frozenset({"c1"})) == ()
    assert compare_docker(WORLD, docker, frozenset({"c2"})) != ()


@pytest.mark.parametrize(
    ("name", "changes", "restarts", "is_half"),
    [
        ("c1", {}, False, False),
        ("c1", {}, True, False),
        ("c2", {}, False, False),
        ("c2", {}, True, True),
        ("c2", {"state": "removing"}, False, True),
        ("c1", {"endpoints": {"n1": ""}}, False, True),
        ("c1", {"endpoints": {"n1": ENDPOINT, "n2": "9" * 64}}, False, True),
    ],
)
def test_an_incomplete_container_is_recognised(
    name: str, changes: dict[str, object], *, restarts: bool, is_half: bool
) -> None:
    """An interrupted operation may leave a container that Docker itself cannot use."""
    assert changed(name, **changes).is_half_of_something(name, restarts=restarts) is is_half


RECORD = Reservation(list="house", address="10.82.13.2", endpoint="a" * 64)
REQUESTED_WORLD = World(
    containers={"c1": Container(home="n2", networks=frozenset({"n2"}), running=True)}, networks={"n2": "house"}
)
REQUESTED_DOCKER = DockerView(
    containers={
        "c1": DockerContainer(
            state="running", endpoints={"n2": ENDPOINT}, addresses_on={"n2": (RECORD.address,)}, process=7
        ),
    },
    networks={"n2": DockerNetwork(id="2" * 64, endpoints={ENDPOINT: "c1"}, is_ours=False)},
)
REQUESTED_ARTIFACTS = {"house": Artifacts(rules=(), links=(), families=1)}
REQUESTED_MACHINE = replace(
    MACHINE,
    sandboxes={"c1": Sandbox(links={"eth0": (RECORD.address,)}, unreachable=())},
    reservations=(RECORD,),
    rules=Counter(),
    links=Counter(),
    staging=frozenset(),
    files=(),
    network_records=frozenset(),
    endpoint_records={},
    addresses=(RECORD,),
)
OTHER = replace(RECORD, address="10.82.13.3")

REQUESTED_DIFFERENCES: dict[str, tuple[Callable[[MachineView], MachineView], str]] = {
    "a record is missing": (lambda view: replace(view, addresses=()), "missing: record of address house 10.82.13.2"),
    "a record is left": (
        lambda view: replace(view, addresses=(RECORD, OTHER), reservations=(RECORD, OTHER)),
        "too much: record of address house 10.82.13.3",
    ),
    "a record is not complete": (
        lambda view: replace(view, addresses=(replace(RECORD, address="10.82.13.2/24, releasing"),)),
        "too much: record of address house 10.82.13.2/24, releasing",
    ),
    "the plugin has nothing": (lambda view: replace(view, reservations=()), "container c1: address at Docker"),
    "the plugin has more": (
        lambda view: replace(view, reservations=(RECORD, OTHER)),
        f"too much: for a record, {OTHER}",
    ),
    "the plugin has it for another record": (
        lambda view: replace(view, reservations=(replace(RECORD, endpoint="b" * 64),)),
        f"missing: for a record, {RECORD}",
    ),
}


def test_no_difference_on_a_network_of_dockers_own_driver() -> None:
    """It has no endpoint and no network of this driver, only an address."""
    assert compare(REQUESTED_WORLD, REQUESTED_DOCKER, REQUESTED_MACHINE, REQUESTED_ARTIFACTS) == ()


@pytest.mark.parametrize("what", REQUESTED_DIFFERENCES)
def test_requested_addresses_are_compared(what: str) -> None:
    """Docker, the daemon's records and the plugin's data must have the same addresses."""
    change, expected = REQUESTED_DIFFERENCES[what]
    found = compare(REQUESTED_WORLD, REQUESTED_DOCKER, change(REQUESTED_MACHINE), REQUESTED_ARTIFACTS)
    assert any(expected in line for line in found), found
