# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container's other networks and what it may do to the host's, as the engine reports them."""

import pytest

from cni_bridge_spec import JsonError, JsonObject, JsonValue
from cnm_bridge.core.engine_facts.container import (
    EngineContainer,
    container_of_cgroup,
    find_privileges,
    find_sandbox,
    has_name,
    has_other_network,
    is_only_network,
    link_local_addresses,
)
from cnm_bridge.core.engine_facts.network import EngineNetwork

BLUE = EngineNetwork.from_json({"Id": "6f" * 32, "Name": "blue", "Containers": {}})


def container(**networks: str) -> JsonObject:
    """Make a container on networks with these IDs."""
    return {
        "Names": ["/web", "/proxy/alias"],
        "NetworkSettings": {"Networks": {name: {"NetworkID": network_id} for name, network_id in networks.items()}},
    }


@pytest.mark.parametrize(
    ("networks", "others"),
    [
        ({}, False),
        ({"blue": ""}, False),
        ({"blue": BLUE.id}, False),
        ({BLUE.id: ""}, False),
        ({BLUE.id[:12]: ""}, False),
        ({"azure": BLUE.id}, False),
        ({"red": ""}, True),
        ({"blue": BLUE.id, "red": "71" * 32}, True),
        ({BLUE.id: "", "bridge": ""}, True),
    ],
)
def test_a_container_has_another_network(networks: dict[str, str], *, others: bool) -> None:
    """A network is identified by its name, its ID, or the beginning of its ID."""
    assert has_other_network(container(**networks), BLUE) is others


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([], False),
        ([("exited", {"blue": ""})], True),
        ([("created", {"blue": BLUE.id}), ("running", {"blue": BLUE.id, "red": "71" * 32})], True),
        ([("restarting", {BLUE.id[:12]: ""}), ("exited", {"red": ""})], True),
        ([("running", {"blue": BLUE.id})], False),
        ([("exited", {"blue": "", "red": ""})], False),
        ([("exited", {"blue": ""}), ("created", {"red": "", "blue": ""})], False),
        ([("exited", {"red": ""})], False),
        ([("exited", {})], False),
    ],
)
def test_the_only_network_of_a_container_that_is_being_started(
    containers: list[tuple[str, dict[str, str]]], *, expected: bool
) -> None:
    """Those that run do not count, nor those on other networks; one with a further network makes it uncertain."""
    listed = [
        EngineContainer.from_json({**container(**networks), "Id": "b1", "State": state})
        for state, networks in containers
    ]
    assert is_only_network(BLUE, listed) is expected


@pytest.mark.parametrize("document", [{}, {"NetworkSettings": None}, {"NetworkSettings": {"Networks": ["blue"]}}])
def test_a_container_without_a_list_of_networks_is_an_error(document: JsonObject) -> None:
    """A missing or invalid list does not mean that the container has no networks."""
    with pytest.raises(JsonError, match="Network"):
        has_other_network(document, BLUE)


@pytest.mark.parametrize(
    ("endpoint_id", "key", "found"),
    [
        ("e1", "/var/run/docker/netns/1", "/var/run/docker/netns/1"),
        ("e2", "/var/run/docker/netns/1", None),
        ("e1", "", None),
    ],
)
def test_the_sandbox_of_an_endpoint(endpoint_id: str, key: str, found: str | None) -> None:
    """A container that was restarted since has another endpoint; one that does not run has no sandbox."""
    settings: JsonObject = {"SandboxKey": key, "Networks": {"blue": {"EndpointID": "e1"}}}
    assert find_sandbox({"NetworkSettings": settings}, endpoint_id) == found


def test_a_stored_container() -> None:
    """The file of dockerd tells who it is; its labels may be null."""
    stored: JsonObject = {"ID": "6f" * 32, "Name": "/web", "Config": {"Image": "busybox", "Labels": {"tier": "front"}}}
    found = EngineContainer.from_stored(stored)
    assert (found.id, found.name, found.image, found.labels) == ("6f" * 32, "web", "busybox", {"tier": "front"})
    assert EngineContainer.from_stored({**stored, "Config": {"Image": "busybox", "Labels": None}}).labels == {}
    with pytest.raises(JsonError):
        EngineContainer.from_stored({"ID": "6f" * 32, "Name": "/web"})


def test_the_name_of_a_container() -> None:
    """Docker writes it with a leading slash; names by which links refer to it have two slashes."""
    assert has_name(container(), "web")
    assert not has_name(container(), "alias")


@pytest.mark.parametrize(
    ("networks", "further"),
    [
        ({}, False),  # connected while it runs
        ({"blue": ""}, False),  # its first start
        ({"blue": BLUE.id}, False),
        ({"red": ""}, False),  # the network that is being joined, by another name
        ({"red": "71" * 32}, True),  # it runs on another one
        ({"blue": "", "red": ""}, True),
        ({"blue": BLUE.id, "red": "71" * 32}, True),
    ],
)
def test_a_container_that_is_joined_has_a_further_network(networks: dict[str, str], *, further: bool) -> None:
    """The network that is being joined may be listed by its ID, without an ID, or not at all."""
    starting = EngineContainer.from_json({**container(**networks), "Id": "ab" * 32})
    assert starting.has_further_network(BLUE.id) is further


@pytest.mark.parametrize(
    ("cgroup", "found"),
    [
        (f"0::/system.slice/docker-{'ab' * 32}.scope\n", "ab" * 32),
        (f"12:pids:/docker/{'ab' * 32}\n0::/docker/{'ab' * 32}\n", "ab" * 32),
        (f"0::/docker/{'cd' * 32}/docker/{'ab' * 32}\n", "ab" * 32),  # Docker in Docker
        ("0::/user.slice/session-1.scope\n", None),
        (f"0::/x/{'ab' * 33}\n", None),
    ],
)
def test_the_container_of_a_cgroup(cgroup: str, found: str | None) -> None:
    """Its ID is the last one in the path, with both cgroup drivers."""
    assert container_of_cgroup(cgroup) == found


@pytest.mark.parametrize(("given", "expected"), [(None, False), ({}, True), ({"IPv4Address": "10.1.0.9"}, True)])
def test_given_addresses(given: JsonValue, *, expected: bool) -> None:
    """The list of containers shows whether there are any, and not the link-local ones."""
    document: JsonObject = {
        "Id": "ab" * 32,
        "Names": ["/web"],
        "NetworkSettings": {"Networks": {"red": {"IPAMConfig": None}, "blue": {"IPAMConfig": given}}},
    }
    assert EngineContainer.from_json(document).has_given_addresses is expected


def stored(**networks: tuple[str, list[JsonValue]]) -> JsonObject:
    """Return what dockerd stores of a container on networks with these IDs and link-local addresses."""
    entries: JsonObject = {
        name: {"NetworkID": network_id, "IPAMConfig": {"LinkLocalIPs": addresses}}
        for name, (network_id, addresses) in networks.items()
    }
    return {"NetworkSettings": {"Networks": entries}}


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (stored(blue=("", ["169.254.7.1", "fe80::77"])), None),
        (stored(blue=("an earlier one", ["169.254.7.1", "fe80::77"])), None),
        (stored(blue=("", ["169.254.7.1", "fe80::77"]), red=("", ["169.254.7.9"])), "blue"),
        (stored(azure=(BLUE.id, ["169.254.7.1", "fe80::77"]), blue=("", ["169.254.7.9"])), "blue"),
    ],
)
def test_link_local_addresses(document: JsonObject, name: str | None) -> None:
    """Those of the network that is joined, also before the first start, with Docker's prefixes."""
    found = link_local_addresses(document, BLUE.id, name)
    assert list(map(str, found)) == ["169.254.7.1/16", "fe80::77/64"]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"NetworkSettings": {"Networks": {}}},
        {"NetworkSettings": {"Networks": {"blue": {"NetworkID": "", "IPAMConfig": None}}}},
        stored(red=("", ["169.254.7.9"]), green=("", [])),
    ],
)
def test_no_link_local_addresses(document: JsonObject) -> None:
    """None are given, or the network is not listed yet: a running container is being connected to it."""
    assert link_local_addresses(document, BLUE.id, "blue") == ()


def test_what_is_no_address() -> None:
    """It is an error."""
    with pytest.raises(ValueError, match="local"):
        link_local_addresses(stored(blue=("", ["local"])), BLUE.id, "blue")


@pytest.mark.parametrize(
    ("host_config", "options"),
    [
        ({}, ()),
        ({"Privileged": False, "CapAdd": None, "CapDrop": None, "UsernsMode": ""}, ()),
        ({"CapAdd": ["CAP_NET_RAW", "SYS_PTRACE"], "CapDrop": ["ALL"]}, ()),
        ({"Privileged": True}, ("--privileged",)),
        ({"CapAdd": ["CAP_SYS_ADMIN", "net_admin"]}, ("--cap-add NET_ADMIN", "--cap-add SYS_ADMIN")),
        ({"CapAdd": ["SYS_MODULE"], "CapDrop": ["ALL"]}, ("--cap-add SYS_MODULE",)),
        ({"CapAdd": ["NET_ADMIN"], "CapDrop": ["NET_ADMIN"]}, ("--cap-add NET_ADMIN",)),
        ({"CapAdd": ["ALL"]}, ("--cap-add ALL",)),
        ({"CapAdd": ["ALL"], "CapDrop": ["NET_ADMIN"]}, ("--cap-add ALL",)),
        ({"CapAdd": ["ALL"], "CapDrop": ["NET_ADMIN", "CAP_SYS_ADMIN", "SYS_MODULE"]}, ()),
    ],
)
def test_options(host_config: JsonObject, options: tuple[str, ...]) -> None:
    """Engines write capabilities with and without `CAP_`; what is added and dropped stays, except after `ALL`."""
    assert find_privileges(host_config, remaps_users=False) == options


def test_a_user_namespace() -> None:
    """Capabilities there do not reach the host, unless the container chooses the host's user namespace."""
    assert find_privileges({"Privileged": True}, remaps_users=True) == ()
    assert find_privileges({"Privileged": True, "UsernsMode": "host"}, remaps_users=True) == ("--privileged",)
