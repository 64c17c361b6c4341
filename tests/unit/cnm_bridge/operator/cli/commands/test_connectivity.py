# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge test`: what it finds out about a network before it starts containers."""

import json
import socket
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.commands.connectivity import examine
from cnm_bridge.operator.connectivity.pair import DockerCommand


def test_the_list_of_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says whether ports are published, and how the network is guarded."""
    plugins = [{"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    conflist = {"cniVersion": "1.0.0", "name": "own", "plugins": [*plugins, {"type": "egress", "allow": ["a.example"]}]}
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d/own.conflist").write_text(json.dumps(conflist), "utf-8")
    options = {"cni.network": "own"}
    network: JsonObject = {"Name": "blue", "Driver": "s", "Internal": True, "Options": options}
    (tmp_path / "inspected").write_text(json.dumps([network]), "utf-8")
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\nexec cat {tmp_path}/inspected\n", "utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    settings = Settings(socket=tmp_path / "s", run_dir=tmp_path, cni_conf_dirs=(tmp_path / "net.d",))
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(settings.socket))
        daemon.listen()
        no_ports, guard = examine(DockerCommand("unix:///none"), settings, "blue")
    assert no_ports == ""
    assert guard is not None
    assert [*guard.destinations()] == [("a.example", 443)]
