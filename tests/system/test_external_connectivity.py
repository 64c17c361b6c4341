# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""ProgramExternalConnectivity and RevokeExternalConnectivity: repeated, out of order, concurrent, after a failure."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_str
from tests.lab import Lab
from tests.system.calls import NETWORK, call, create_network, delete_endpoint
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
        interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
        assert "Interface" in call(lab, "CreateEndpoint", {**about(endpoint), "Interface": interface, "Options": {}})
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


def test_programming_other_ports_replaces_the_first(joined: Lab) -> None:
    """A port that the second call does not name is free for other endpoints."""
    first, second = ENDPOINTS
    assert program(joined, first, 8203, 8204) == {}
    assert program(joined, first, 8204) == {}
    assert published(joined) == ["8204"]
    assert program(joined, second, 8203) == {}
    assert published(joined) == ["8203", "8204"]


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


def test_concurrent_calls_for_the_same_port(joined: Lab) -> None:
    """One endpoint receives the port; the other call's error names that endpoint."""
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda endpoint: program(joined, endpoint, 8208), ENDPOINTS))
    assert published(joined) == ["8208"]
    (refused,) = (get_str(answer, "Err") for answer in answers if answer)
    assert "it is already published for endpoint" in refused


def test_an_address_of_a_family_that_the_container_lacks(joined: Lab) -> None:
    """`-p [::1]:…` on an IPv4 network is refused: `portmap` would silently make no rule."""
    first, _ = ENDPOINTS
    before = joined.state()
    assert "the container has no IPv6 address" in get_str(program(joined, first, 8209, host_ip="::1"), "Err")
    assert joined.wait_clean(before) == ""


def test_an_unknown_endpoint(joined: Lab) -> None:
    """Revoking its ports succeeds, and publishing ports fails."""
    unknown = "ff" * 32
    assert call(joined, "RevokeExternalConnectivity", about(unknown)) == {}
    assert unknown[:12] in get_str(program(joined, unknown, 8210), "Err")
