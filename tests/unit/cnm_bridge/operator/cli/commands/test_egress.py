# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge egress ls`: Docker's names in place of those of CNI."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.errors import UnknownName
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.commands.egress import GuardedNames, show_policies
from cnm_bridge.operator.cli.containers import Container, ContainerNetwork, Inventory, take_inventory
from cnm_bridge.operator.cli.output import Shown, render

AGENTS, OTHERS = "6f" * 32, "7f" * 32
WEB, DB, JOB = "77" * 32, "78" * 32, "79" * 32


def attachment(container_id: str, address: str, *allow: str, opened: int = 0) -> JsonObject:
    """Return an attachment as `cni-egress` lists it."""
    use: JsonObject = {"name": "a.example", "address": "192.0.2.7", "ports": ["443/tcp", "80/tcp"], "seconds": 605}
    return {
        "containerId": container_id,
        "ifName": "eth0",
        "addresses": [address],
        "allow": list(allow),
        "open": [use] * opened,
        "reached": [{"name": "", "address": "10.0.5.1", "port": "5432/tcp", "connections": 2}] * opened,
        "refused": 3,
    }


LISTED: JsonObject = {
    "network": "lan",
    "audit": False,
    "allow": ["a.example", "10.0.5.0/24:5432/tcp"],
    "subnets": ["10.66.0.0/24"],
    "attachments": [
        attachment(WEB, "10.66.0.2", opened=1),
        attachment(DB, "10.66.0.3", "own.example"),
        attachment(JOB, "10.66.0.4"),
        attachment("of-podman", "10.66.0.5"),
    ],
}


@pytest.fixture(name="names")
def make_names() -> GuardedNames:
    """Two Docker networks of the list `lan`, with three containers; the engine does not know the last one's name."""
    containers = {
        one: Container(id=one, name=name, image="box", state="running") for one, name in ((WEB, "web"), (DB, "db"))
    }
    endpoints: list[JsonObject] = [
        {"id": one, "networkId": network, "phase": "joined", "addresses": [], "containerId": one}
        for one, network in ((WEB, AGENTS), (DB, AGENTS), (JOB, OTHERS))
    ]
    networks: list[JsonObject] = [
        {"id": AGENTS, "name": "agents", "configuration": "lan", "internal": True},
        {"id": OTHERS, "name": "others", "configuration": "lan", "internal": True},
    ]
    return GuardedNames(
        Inventory(
            document={"networks": networks, "endpoints": endpoints}, containers=containers, network_names={}, notes=()
        )
    )


def printed(shown: Shown, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what is printed into a pipe."""
    render(shown, as_json=False, no_trunc=False)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_all_networks(names: GuardedNames, capsys: pytest.CaptureFixture[str]) -> None:
    """Each Docker network has its policy and its containers; those of other runtimes are together."""
    assert printed(show_policies(names, [LISTED], None), capsys) == [
        "agents allows a.example, 10.0.5.0/24:5432/tcp.",
        "",
        "CONTAINER  ADDRESSES  OPEN  CONNECTIONS  REFUSED  ALSO ALLOWED",
        "web        10.66.0.2  1     2            3        -",
        "db         10.66.0.3  0     0            3        own.example",
        "",
        "others allows a.example, 10.0.5.0/24:5432/tcp.",
        "",
        "CONTAINER     ADDRESSES  OPEN  CONNECTIONS  REFUSED",
        "797979797979  10.66.0.4  0     0            3",
        "",
        "lan (of another runtime) allows a.example, 10.0.5.0/24:5432/tcp.",
        "",
        "CONTAINER  ADDRESSES  OPEN  CONNECTIONS  REFUSED",
        "of-podman  10.66.0.5  0     0            3",
    ]


def test_one_network(names: GuardedNames, capsys: pytest.CaptureFixture[str]) -> None:
    """It also has the addresses that names have opened, and where connections went."""
    shown = show_policies(names, [LISTED], "agents")
    assert printed(shown, capsys)[-6:] == [
        "",
        "CONTAINER  NAME       ADDRESS    PORTS           LEFT",
        "web        a.example  192.0.2.7  443/tcp 80/tcp  10m",
        "",
        "CONTAINER  NAME  ADDRESS   PORT      CONNECTIONS",
        "web        -     10.0.5.1  5432/tcp  2",
    ]
    assert isinstance(shown.document, list)
    assert len(shown.document) == 1


def test_nothing_is_there(names: GuardedNames, capsys: pytest.CaptureFixture[str]) -> None:
    """The text says so."""
    assert printed(show_policies(names, [], None), capsys) == ["No container is on a guarded network."]


def test_a_refusal_without_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not that of a container that does not run, which Docker lists with an empty ID of its endpoint."""
    stopped = Container(id=WEB, name="stopped", image="box", state="exited", networks=(ContainerNetwork(key="lan"),))
    monkeypatch.setattr(AdminClient, "get", lambda *_, **__: {"networks": [], "endpoints": []})
    monkeypatch.setattr("cnm_bridge.operator.cli.containers.ask_engine", lambda *_: ((stopped,), {}))
    assert GuardedNames(take_inventory(AdminClient(Path()), "")).container("") == "?"


def test_names(names: GuardedNames) -> None:
    """Networks have the name of their list; an unknown one has a hint."""
    assert names.configuration("agents") == "lan"
    assert [names.container(one) for one in (WEB, JOB, "")] == ["web", JOB[:12], "?"]
    with pytest.raises(UnknownName, match="cni-bridge ls --networks"):
        names.configuration("none")
