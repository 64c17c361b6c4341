# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The allow-list in a file: it is changed as a whole, or not at all."""

import json
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.networks.allow_list import AllowList

DOCUMENT: JsonObject = {
    "cniVersion": "1.0.0",
    "name": "agents",
    "plugins": [
        {"type": "bridge", "bridge": "cni-agents"},
        {"type": "egress", "allow": ["a.example", "10.0.5.0/24"], "capabilities": {"egress": True}},
    ],
}


@pytest.fixture(name="known")
def make_list(tmp_path: Path) -> AllowList:
    """A list in a file."""
    file = tmp_path / "agents.conflist"
    file.write_text(json.dumps(DOCUMENT))
    file.chmod(0o640)
    return AllowList(configuration="agents", file=file, content=file.read_bytes(), entries=("a.example", "10.0.5.0/24"))


def test_entries(known: AllowList) -> None:
    """What is there is not added again; upper and lower case are the same."""
    assert known.added(["b.example", "a.example"]) == ("a.example", "10.0.5.0/24", "b.example")
    assert known.removed(["A.example", "none"]) == ("10.0.5.0/24",)


def test_a_change(known: AllowList) -> None:
    """The file has it before it is in force; the rest of the list and the permissions stay."""
    document = known.change(["b.example"], lambda: json.loads(known.file.read_text()))
    assert document["plugins"][1] == {"type": "egress", "allow": ["b.example"], "capabilities": {"egress": True}}
    assert {**document, "plugins": []} == {**DOCUMENT, "plugins": []}
    assert known.file.stat().st_mode & 0o777 == 0o640


def test_a_change_that_fails(known: AllowList) -> None:
    """The file has its former content, byte by byte."""

    def fail() -> None:
        raise Refused("no")

    with pytest.raises(Refused, match="no"):
        known.change(["b.example"], fail)
    assert known.file.read_bytes() == known.content
    assert len(list(known.file.parent.iterdir())) == 1


def test_no_change(known: AllowList) -> None:
    """The file is left alone, and the running containers are changed all the same."""
    before = known.file.stat().st_mtime_ns
    assert known.change(known.entries, lambda: 7) == 7
    assert known.file.stat().st_mtime_ns == before
