# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: its tables, and its error without a daemon."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner

from cni_bridge_spec import JsonObject, get_objects
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.commands.cleanup import AFTER_FAILURE
from cnm_bridge.operator.cli.commands.status import show_status
from cnm_bridge.operator.cli.main import main
from cnm_bridge.operator.cli.output import render

STATUS: JsonObject = {
    "engine": {"isUp": True, "identity": "UFZ2", "rounds": 2},
    "networks": [{"id": "6f" * 32, "name": "blue", "configuration": "lan", "internal": False}],
    "lists": ["lan"],
    "endpoints": [
        {
            "id": "77" * 32,
            "networkId": "6f" * 32,
            "phase": "joined",
            "mode": "sandbox",
            "configuration": "lan",
            "addresses": ["10.1.2.3/24", "fd00::3/64"],
            "sandboxKey": None,
        },
        {
            "id": "88" * 32,
            "networkId": "00" * 32,
            "phase": "deleting",
            "mode": "move",
            "configuration": "lan",
            "addresses": [],
            "sandboxKey": None,
        },
    ],
    "pendingTeardowns": [],
    "dhcp": [],
    "pools": [],
}


def render_status(document: JsonObject) -> str:
    """Return what the command prints into a pipe."""
    with redirect_stdout(StringIO()) as printed:
        render(show_status(document, {"77" * 32: "web"}), as_json=False, no_trunc=False)
    return printed.getvalue()


def test_a_new_host() -> None:
    """The first network is one command away."""
    assert render_status({**STATUS, "networks": [], "endpoints": []}).splitlines() == [
        "fine: the Docker Engine answers; 0 networks, 0 endpoints",
        "",
        "no networks yet; make one: cni-bridge network create blue --subnet 10.22.0.0/16",
    ]


def test_pools() -> None:
    """What Docker has from the IPAM driver, below everything that needs attention."""
    pool: JsonObject = {"id": "lan,10.1.0.0/24,,12", "section": "lan", "subnet": "10.1.0.0/24", "part": None}
    *_, heads, row = render_status({**STATUS, "pools": [{**pool, "gateway": None, "addresses": 0}]}).splitlines()
    assert heads.split() == ["ADDRESS", "POOL", "SECTION", "PART", "GATEWAY", "ADDRESSES"]
    assert row.split() == ["10.1.0.0/24", "lan", "-", "-", "0"]


PENDING: JsonObject = {"endpointId": "88" * 32, "attempts": 3, "error": "plugin firewall failed"}
GATEWAY = "or make a network that can publish them the container's gateway (from Engine 28 on, gw-priority)"
RUNNING: JsonObject = {"plugin": "bridge", "verb": "ADD", "containerId": "99" * 32, "ageS": 2.4}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "fine: the Docker Engine answers; 1 network, 2 endpoints"),
        (
            {"untriedTeardowns": ["88" * 32]},
            "fine: the Docker Engine answers; 1 network, 2 endpoints, 1 teardown under way",
        ),
        ({"engine": {"isUp": False, "identity": None, "rounds": 2}}, "attention: the Docker Engine does not answer"),
        (
            {"engine": {"isUp": None, "identity": None, "rounds": 0}},
            "fine: the daemon has just started; 1 network, 2 endpoints",
        ),
        (
            {"engine": {"isUp": True, "identity": "UFZ2", "rounds": 0}},
            "fine: the daemon has just started; 1 network, 2 endpoints",
        ),
        ({"pendingTeardowns": [PENDING]}, "attention: 1 teardown failed, and will be repeated"),
        ({"runningPlugins": [{**RUNNING, "ageS": 61.2}, RUNNING]}, "attention: bridge ADD has been running for 61 s"),
        ({"runningPlugins": [RUNNING]}, "fine: the Docker Engine answers; 1 network, 2 endpoints"),
    ],
)
def test_the_first_line_is_a_verdict(changes: JsonObject, verdict: str) -> None:
    """It says what needs attention, else what there is."""
    assert render_status({**STATUS, **changes}).splitlines()[0] == verdict


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"pendingTeardowns": [{**PENDING, "endpointId": "77" * 32}]},
            ["777777777777      blue     3         plugin firewall failed", "", AFTER_FAILURE],
        ),
        (
            {"runningPlugins": [RUNNING]},
            ["PLUGIN RUNNING NOW  VERB  CONTAINER ID  AGE", "bridge              ADD   999999999999  2s"],
        ),
        ({"untriedTeardowns": ["88" * 32]}, ["TEARDOWN UNDER WAY  NETWORK", "888888888888        -"]),
        (
            {"endpoints": [{**one, "notPublished": "no portmap"} for one in get_objects(STATUS, "endpoints")]},
            ["web                  blue     no portmap", "888888888888         -        no portmap", "", GATEWAY],
        ),
        (
            {"dhcp": [{"socket": "/run/d", "error": None, "lost": [{"endpointId": "77" * 32, "error": "late"}]}]},
            ["DHCP WITHOUT  ERROR", "lease of web  late"],
        ),
    ],
    ids=["failed teardowns", "running plugins", "teardowns under way", "unpublished ports", "leases"],
)
def test_what_an_operator_should_know_has_a_table(changes: JsonObject, expected: list[str]) -> None:
    """It is the last one."""
    assert render_status({**STATUS, **changes}).splitlines()[-len(expected) :] == expected


def test_a_network_without_a_list() -> None:
    """No container starts on it, so all is not well."""
    lines = render_status({**STATUS, "lists": []}).splitlines()
    assert lines[0] == "attention: 1 network without a list: no container starts on it"
    assert [line.split() for line in lines[3:]] == [["blue", "lan"]]


def test_waiting_for_the_first_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it the daemon does not know which teardowns are due; without it in time all is not well."""
    new: JsonObject = {**STATUS, "engine": {"isUp": True, "identity": "UFZ2", "rounds": 0}, "pendingReleases": []}
    answers = iter((new, {**new, "untriedTeardowns": ["88" * 32]}, {**STATUS, "pendingReleases": []}))
    arguments = ["status", "--admin-socket", str(tmp_path / "none"), "--wait"]
    monkeypatch.setattr(AdminClient, "get", lambda _, __: next(answers))
    done = CliRunner().invoke(main, [*arguments, "10"])
    assert (done.exit_code, "fine: the Docker Engine answers" in done.output, [*answers]) == (0, True, [])
    monkeypatch.setattr(AdminClient, "get", lambda _, __: new)
    assert CliRunner().invoke(main, [*arguments, "0.01"]).exit_code == 1
