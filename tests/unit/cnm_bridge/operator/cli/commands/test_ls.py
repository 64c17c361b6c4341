# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge ls` and `inspect`: their tables, and how they find what is named."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject, get_objects
from cnm_bridge.core.errors import UnknownName
from cnm_bridge.operator.cli.commands.ls import show_endpoints, show_networks
from cnm_bridge.operator.cli.containers import Container, ContainerNetwork, Inventory
from cnm_bridge.operator.cli.output import Shown, age, ports_text, render

BLUE, RED = "6f" * 32, "7f" * 32
WEB, DB, OTHER = "77" * 32, "78" * 32, "99" * 32
END = ("MAC", "PORTS", "MODE", "AGE", "PHASE", "ENDPOINT")


def entry(endpoint_id: str, address: str, network: str = BLUE, **more: object) -> JsonObject:
    """Return an endpoint as the daemon lists it."""
    document: dict[str, object] = {
        "id": endpoint_id,
        "networkId": network,
        "phase": "joined",
        "mode": "move",
        "configuration": "lan",
        "addresses": [address],
        "mac": "02:00:00:00:00:01",
        "ports": [],
        "notPublished": None,
        "sandboxKey": None,
        "createdAt": None,
        **more,
    }
    return document  # type: ignore[return-value]


def container(container_id: str, name: str, *endpoint_ids: str) -> Container:
    """Return a container with some endpoints."""
    return Container(
        id=container_id,
        name=name,
        image="box",
        state="running",
        networks=tuple(ContainerNetwork(key=one, endpoint_id=one) for one in endpoint_ids),
    )


def inventory(containers: Mapping[str, Container] | None = None, all_containers: Sequence[Container] = ()) -> Inventory:
    """Return three endpoints on two networks, of the containers web (on both networks) and db."""
    web, database = container("aa" * 32, "web", WEB, OTHER), container("ab" * 32, "db", DB)
    networks: list[JsonObject] = [
        {"id": BLUE, "name": "blue", "configuration": "lan", "internal": False, "outdatedEndpoints": 1},
        {"id": RED, "name": None, "configuration": "wan", "internal": True},
    ]
    port = {"hostIP": "127.0.0.1", "hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    endpoints = [
        entry(WEB, "10.1.2.3/24", ports=[port], createdAt=int(time.time()) - 7300),
        entry(DB, "10.1.2.4/24", phase="ready", notPublished="there is no portmap"),
        entry(OTHER, "10.9.9.9/24", RED, sticky={"key": "db", "missed": ["10.1.0.9"]}, dynamicAddresses=["fd09::9/64"]),
    ]
    known = {WEB: web, OTHER: web, DB: database} if containers is None else containers
    return Inventory(
        document={"networks": networks, "endpoints": endpoints},
        containers=known,
        network_names={},
        notes=(),
        all_containers=all_containers,
    )


def lines(shown: Shown, capsys: pytest.CaptureFixture[str], *, no_trunc: bool = False) -> list[str]:
    """Return what is printed into a pipe."""
    render(shown, as_json=False, no_trunc=no_trunc)
    return capsys.readouterr().out.splitlines()


def test_endpoints_have_the_names_of_their_containers(capsys: pytest.CaptureFixture[str]) -> None:
    """And ports and age, sorted by name."""
    found = [line.split("  ") for line in lines(show_endpoints(inventory(), None), capsys)]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in found]
    assert cells == [
        ["CONTAINER", "IMAGE", "NETWORK", "ADDRESSES", "DYNAMIC", "KEY", *END],
        [
            *("db", "box", "blue", "10.1.2.4/24", "-", "-", "02:00:00:00:00:01", "not published", "move", "?"),
            *("ready", DB[:12]),
        ],
        [
            *("web", "box", RED[:12], "10.9.9.9/24", "fd09::9/64", "db (not 10.1.0.9)"),
            *("02:00:00:00:00:01", "-", "move", "?"),
            *("joined", OTHER[:12]),
        ],
        [
            *("web", "box", "blue", "10.1.2.3/24", "-", "-", "02:00:00:00:00:01", "127.0.0.1:8080->80/tcp"),
            *("move", "2h", "joined", WEB[:12]),
        ],
    ]


def test_columns_that_few_networks_need(capsys: pytest.CaptureFixture[str]) -> None:
    """Dynamic addresses and keys have one if any container of the table has some."""
    header = lines(show_endpoints(inventory(), "blue"), capsys)[0]
    assert not {"DYNAMIC", "KEY"} & {*header.split()}


def test_ids_can_be_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    """With --no-trunc."""
    assert WEB in lines(show_endpoints(inventory(), "blue"), capsys, no_trunc=True)[2]


def test_networks(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has the number of its endpoints."""
    assert [line.split() for line in lines(show_networks(inventory(), None), capsys)] == [
        ["NETWORK", "NAME", "CONFIGURATION", "INTERNAL", "ENDPOINTS", "CHANGED"],
        [BLUE[:12], "blue", "lan", "no", "2", "since", "1", "endpoint", "was", "made"],
        [RED[:12], RED[:12], "wan", "yes", "1", "-"],
    ]


def test_whether_a_network_is_internal_is_a_boolean_in_json() -> None:
    """In both lists; only tables have words."""
    for show in (show_networks, show_endpoints):
        document = show(inventory(), None).document
        assert isinstance(document, dict)
        assert [one["internal"] for one in get_objects(document, "networks")] == [False, True]


def test_names_of_new_networks_in_json() -> None:
    """The engine knows them before the daemon; without an answer they are what the daemon knows."""
    for names, shown in (({RED: "red"}, ["blue", "red"]), ({}, ["blue", None])):
        document = show_endpoints(replace(inventory(), network_names=names), None).document
        assert isinstance(document, dict)
        assert [one["name"] for one in get_objects(document, "networks")] == shown


def test_without_an_engine_only_names_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """They are question marks."""
    first = lines(show_endpoints(inventory({}), None), capsys)[1].split()
    assert first[:4] == ["?", "?", RED[:12], "10.9.9.9/24"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("web", (WEB, OTHER)),
        ("10.1.2.4", (DB,)),
        ("10.1.2.4/24", (DB,)),
        ("78", (DB,)),
        (OTHER, (OTHER,)),
        ("aa", (WEB, OTHER)),
        ("fd09::9", (OTHER,)),  # a dynamic address
    ],
)
def test_what_is_named_is_found(name: str, found: tuple[str, ...]) -> None:
    """By the container's name, an address, or the beginning of an ID."""
    assert inventory().find(name) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wbe", "did you mean web"),
        ("10.1.2.99", "cni-bridge ls"),
        ("blue", "blue is a network, not a container; `cni-bridge ls blue` shows"),
        ("7", r"ambiguous: endpoint 777777777777 \(web\), endpoint 787878787878 \(db\)"),
        ("a", r"container aaaaaaaaaaaa \(web\), container abababababab \(db\)"),
    ],
)
def test_what_is_not_found_has_a_hint(name: str, text: str) -> None:
    """The nearest name, or the candidates."""
    with pytest.raises(UnknownName, match=text):
        inventory().find(name)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("exited", r"container old exists and is not running \(exited\), so it has no endpoint; docker start old"),
        ("created", "is not running"),
        ("running", "container old is on no network of cni-bridge"),
    ],
)
@pytest.mark.parametrize("name", ["old", "ee"])
def test_a_container_without_an_endpoint_is_not_unknown(state: str, text: str, name: str) -> None:
    """It does not run, or is on other networks."""
    old = replace(container("ee" * 32, "old"), state=state)
    with pytest.raises(UnknownName, match=text):
        inventory(all_containers=[old]).find(name)


def test_an_unknown_network_has_a_hint() -> None:
    """As an unknown container."""
    with pytest.raises(UnknownName, match="did you mean blue"):
        show_endpoints(inventory(), "bleu")


@pytest.mark.parametrize(
    ("port", "text"),
    [
        ({"hostPort": 80, "containerPort": 8080, "protocol": "udp"}, "80->8080/udp"),
        ({"hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "::1"}, "[::1]:80->80/tcp"),
    ],
)
def test_ports_are_shown_as_docker_shows_them(port: JsonObject, text: str) -> None:
    """With the address of the host, if it is restricted to one."""
    assert ports_text([port]) == text


def test_ports_are_in_order() -> None:
    """By address, protocol and number, whatever the order of the document."""
    ports: list[JsonObject] = [
        {"hostPort": 10000, "containerPort": 90, "protocol": "tcp"},
        {"hostPort": 9000, "containerPort": 80, "protocol": "tcp"},
        {"hostPort": 9000, "containerPort": 80, "protocol": "udp"},
        {"hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "10.0.0.1"},
    ]
    assert ports_text(ports) == "9000->80/tcp, 10000->90/tcp, 9000->80/udp, 10.0.0.1:80->80/tcp"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59, "59s"), (61, "1m"), (7300, "2h"), (200_000, "2d")])
def test_ages(seconds: int, text: str) -> None:
    """In the largest unit."""
    assert age(int(time.time()) - seconds) == text
