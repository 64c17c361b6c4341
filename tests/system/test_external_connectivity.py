# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""ProgramExternalConnectivity and RevokeExternalConnectivity: repeated, out of order, concurrent, after a failure."""

from collections.abc import Iterator

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_str
from tests.lab import Lab
from tests.system.calls import NETWORK, call, create_endpoint, create_network, delete_endpoint
from tests.system.plugin_lists import PORTMAP
from tests.system.scene import Scene, bridge

ENDPOINTS = ("e1" * 32, "e2" * 32)


def about(endpoint: str) -> JsonObject:
    """Return the part of a call's body that names an endpoint."""
    return {"NetworkID": NETWORK, "EndpointID": endpoint}


def program(lab: Lab, endpoint: str, *host_ports: int, host_ip: str = "") -> JsonObject:
    """Call ProgramExternalConnectivity to publish port 80 at ports of the host."""
    ports: list[JsonValue] = [
        {"Proto": 6, "IP": "", "Port": 80, "HostIP": host_ip, "HostPort": port, "HostPortEnd": port}
        for port in host_ports
    ]
    options: JsonObject = {"com.docker.network.portmap": ports}
    return call(lab, "ProgramExternalConnectivity", {**about(endpoint), "Options": options})


def published(lab: Lab) -> list[str]:
    """Return the ports that the host's rules forward, sorted."""
    rules = lab.run("iptables", "-t", "nat", "-S").stdout.splitlines()
    words = [rule.split() for rule in rules if "-j DNAT" in rule]
    return sorted(word[word.index("--dport") + 1] for word in words)


@pytest.fixture
def joined(scene: Scene) -> Iterator[Lab]:
    """Two joined endpoints on an IPv4 network that can publish."""
    lab = scene.lab
    create_network(lab, scene.configure([*bridge(scene.subnet()), PORTMAP]))
    for endpoint in ENDPOINTS:
        assert "Interface" in create_endpoint(lab, about(endpoint))
        sandbox = f"/var/run/docker/netns/{endpoint[:12]}"
        assert "Err" not in call(lab, "Join", {**about(endpoint), "SandboxKey": sandbox, "Options": {}})
    yield lab
    for endpoint in ENDPOINTS:
        delete_endpoint(lab, about(endpoint))
    assert published(lab) == []
    assert call(lab, "DeleteNetwork", {"NetworkID": NETWORK}) == {}


def test_program_and_revoke_may_be_repeated(joined: Lab) -> None:
    """Repeated calls publish the ports once; revoking unpublished ports succeeds."""
    first, _ = ENDPOINTS
    before = joined.state()
    assert call(joined, "RevokeExternalConnectivity", about(first)) == {}
    for _ in range(2):
        assert program(joined, first, 8201, 8202) == {}
        assert published(joined) == ["8201", "8202"]
    for _ in range(2):
        assert call(joined, "RevokeExternalConnectivity", about(first)) == {}
        assert published(joined) == []
    assert joined.wait_clean(before) == ""


def test_a_refusal_changes_nothing(joined: Lab) -> None:
    """The endpoint keeps the ports that it had, and none of the refused ports stays reserved."""
    first, second = ENDPOINTS
    assert program(joined, first, 8205) == {}
    assert program(joined, second, 8206) == {}
    assert "8205" in get_str(program(joined, second, 8207, 8205), "Err")
    assert published(joined) == ["8205", "8206"]
    assert "8206" in get_str(program(joined, first, 8206), "Err")
    assert program(joined, first, 8205, 8207) == {}
    assert published(joined) == ["8205", "8206", "8207"]


def test_an_unknown_endpoint(joined: Lab) -> None:
    """Revoking its ports succeeds, and publishing ports fails."""
    unknown = "ff" * 32
    assert call(joined, "RevokeExternalConnectivity", about(unknown)) == {}
    assert unknown[:12] in get_str(program(joined, unknown, 8210), "Err")
