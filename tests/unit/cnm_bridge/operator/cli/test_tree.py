# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge ls --tree`: each container stands behind its link."""

from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, get_str
from cnm_bridge.core.errors import UnknownName
from cnm_bridge.operator.cli.commands.ls import show_tree
from cnm_bridge.operator.cli.containers import Container, ContainerNetwork, Inventory
from cnm_bridge.operator.cli.tree import draw_tree
from tests.unit.cnm_bridge.operator.cli.commands.test_ls import BLUE, DB, OTHER, RED, WEB, container, entry

PORT: JsonObject = {"hostIP": "0.0.0.0", "hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
GREEN = "8f" * 32


def on_docker(name: str, state: str, **networks: str) -> Container:
    """Return a container on networks of Docker's own drivers, with its address on each."""
    shown = tuple(
        ContainerNetwork(key=one, id=f"{one}-id", addresses=(address,) if address else ())
        for one, address in networks.items()
    )
    return Container(id="cc" * 32, name=name, image="box", state=state, networks=shown)


def host() -> Inventory:
    """Return two containers on a bridge, one without, an empty network, and others of Docker."""
    networks: list[JsonObject] = [
        {"id": one, "name": name, "configuration": name, "internal": False}
        for one, name in ((BLUE, "blue"), (RED, "red"), (GREEN, "green"))
    ]
    endpoints = [
        entry(WEB, "10.1.2.3/24", hostLink="cni-blue", ports=[PORT]),
        entry(DB, "10.1.2.14/24", hostLink="cni-blue"),
        entry(OTHER, "10.9.9.9/24", RED, hostLink=None, dynamicAddresses=["fd09::9/64"]),
    ]
    return Inventory(
        document={"networks": networks, "endpoints": endpoints},
        containers={
            WEB: container("aa" * 32, "web", WEB, OTHER),
            OTHER: container("aa" * 32, "web", WEB, OTHER),
            DB: container("ab" * 32, "db", DB),
        },
        all_containers=(
            on_docker("old", "running", bridge="172.17.0.2"),
            on_docker("ended", "exited", bridge=""),
            on_docker("plain", "running", host="", shop="172.18.0.2"),
        ),
        network_names={},
        notes=(),
    )


def test_a_host() -> None:
    """Ours by name, networks without containers, and what other drivers have; what does not run is left out."""
    assert draw_tree(host(), None).splitlines() == [
        "host",
        "├── cni-blue  network blue",
        "│   ├── db   10.1.2.14/24",
        "│   └── web  10.1.2.3/24   0.0.0.0:8080->80/tcp",
        "├── no common link  network red",
        "│   └── web  10.9.9.9/24 fd09::9/64",
        "├── network green  no containers",
        "├── other drivers  network bridge",
        "│   └── old  172.17.0.2",
        "└── other drivers  network shop",
        "    └── plain  172.18.0.2",
    ]


def test_one_network() -> None:
    """By its name or ID; others are not drawn."""
    shown = show_tree(host(), "red")
    assert shown.parts == [
        "host\n└── no common link  network red\n    └── web  10.9.9.9/24 fd09::9/64",
    ]
    assert [get_str(one, "id") for one in get_objects(as_object(shown.document, "it"), "endpoints")] == [OTHER]
    with pytest.raises(UnknownName, match="no network pink"):
        show_tree(host(), "pink")


def test_without_the_engine() -> None:
    """Names of containers are not known; their addresses are."""
    silent = replace(host(), containers={}, all_containers=(), notes=("names of containers are not known",))
    assert "│   ├── ?  10.1.2.14/24" in draw_tree(silent, None)
    assert show_tree(silent, None).notes == silent.notes


def test_an_empty_host() -> None:
    """It has no branches."""
    nothing = Inventory(document={"networks": [], "endpoints": []}, containers={}, network_names={}, notes=())
    assert draw_tree(nothing, None) == "host"
