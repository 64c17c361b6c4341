# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each engine gets the flags with which it leaves the addresses to the plugins."""

import subprocess
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.operator.networks.creation import PlannedNetwork, show_file


@pytest.mark.parametrize(
    ("major", "flags", "addressing"),
    [(27, "--ipam-driver null", {"IPAM": {"Driver": "null"}}), (28, "--ipv4=false", {"EnableIPv4": False})],
)
def test_the_flags_of_an_engine(major: int, flags: str, addressing: JsonObject) -> None:
    """The command and the request say the same."""
    request = PlannedNetwork(
        name="blue",
        driver="cni-bridge",
        options={"cni.network": "a b"},
        internal=False,
        version=EngineVersion(major, 0),
    )
    assert request.commands[0] == f"docker network create -d cni-bridge {flags} -o 'cni.network=a b' blue"
    assert request.body == {
        "Name": "blue",
        "Driver": "cni-bridge",
        "Options": {"cni.network": "a b"},
        "Internal": False,
        "CheckDuplicate": True,
        **addressing,
    }


def test_an_internal_network() -> None:
    """Both have the flag."""
    request = PlannedNetwork(name="blue", driver="cni-bridge", options={}, internal=True, version=EngineVersion(29, 0))
    assert request.commands[0] == "docker network create -d cni-bridge --ipv4=false --internal blue"
    assert request.body["Internal"] is True


def test_the_command_that_writes_a_file(tmp_path: Path) -> None:
    """A shell writes the same text, whatever the path is, also into a directory that is missing."""
    path, text = tmp_path / "not made" / "it's here.conflist", '{"name": "$HOME `id`"}\n'
    subprocess.run(["sh", "-c", show_file(path, text)], check=True)
    assert path.read_text("utf-8") == text
