# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: how it reads, and what it says when nobody answers."""

from pathlib import Path

from click.testing import CliRunner

from cnm_bridge.cli.main import main
from cnm_bridge.cli.status_text import render_status
from spec import JsonObject, get_objects

STATUS: JsonObject = {
    "engine": {"isUp": True, "identity": "UFZ2"},
    "networks": [{"id": "6f" * 32, "name": "blue", "configuration": "lan", "internal": False}],
    "endpoints": [
        {
            "id": "77" * 32,
            "networkId": "6f" * 32,
            "phase": "joined",
            "configuration": "lan",
            "addresses": ["10.1.2.3/24", "fd00::3/64"],
            "sandboxKey": None,
        },
        {
            "id": "88" * 32,
            "networkId": "00" * 32,
            "phase": "deleting",
            "configuration": "lan",
            "addresses": [],
            "sandboxKey": None,
        },
    ],
    "pendingTeardowns": [],
    "orphans": [],
}


def test_tables() -> None:
    """Networks and endpoints are told with short identifiers, and the network by its name."""
    assert render_status(STATUS).splitlines() == [
        "engine  up",
        "",
        "NETWORK       NAME  CONFIGURATION",
        "6f6f6f6f6f6f  blue  lan",
        "",
        "ENDPOINT      NETWORK  PHASE     ADDRESSES",
        "777777777777  blue     joined    10.1.2.3/24 fd00::3/64",
        "888888888888  -        deleting  -",
    ]


def test_a_name_that_is_not_known_yet() -> None:
    """The configuration's is not taken for it: several networks may be bound to one."""
    lines = render_status(
        {**STATUS, "networks": [{"id": "6f" * 32, "name": None, "configuration": "lan"}]}
    ).splitlines()
    assert lines[3].split() == ["6f6f6f6f6f6f", "-", "lan"]
    assert lines[6].split()[:2] == ["777777777777", "6f6f6f6f6f6f"]


def test_pending_teardowns_and_orphans() -> None:
    """Pending teardowns and orphans have tables of their own, if there are any."""
    text = render_status(
        {
            **STATUS,
            "pendingTeardowns": [{"endpointId": "88" * 32, "attempts": 3, "error": "plugin firewall failed"}],
            "orphans": [{"network": "lan", "containerId": "somebody", "what": "/var/lib/cni/networks/lan/10.1.2.9"}],
        }
    )
    assert "888888888888      3         plugin firewall failed" in text
    assert "lan        somebody      /var/lib/cni/networks/lan/10.1.2.9" in text


def test_ports_that_are_not_published() -> None:
    """So do ports that a container asks for without success, with the reason."""
    (first, *others) = get_objects(STATUS, "endpoints")
    text = render_status({**STATUS, "endpoints": [{**first, "notPublished": "there is no portmap"}, *others]})
    assert text.splitlines()[-2:] == [
        "PORTS NOT PUBLISHED  NETWORK  WHY",
        "777777777777         blue     there is no portmap",
    ]


def test_nobody_answers(tmp_path: Path) -> None:
    """It says where it asked, and what can be done without a daemon."""
    result = CliRunner().invoke(main, ["status", "--socket", str(tmp_path / "none.sock")])
    assert result.exit_code == 1
    assert str(tmp_path / "none.sock") in result.output
    assert "cni-bridge state show" in result.output
