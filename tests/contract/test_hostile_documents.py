# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Values that become part of a path, a command line or a plugin's input must match an allowlist; others are refused."""

from collections.abc import Callable

import pytest

from cni_bridge_spec import JsonValue, SchemaError, load_validator

BOTH = {"NetworkID": "a1" * 32, "EndpointID": "e2" * 32}
MANY = 300_000

PATHS = [
    "",
    "relative",
    "/",
    "/a/../../etc/shadow",
    "/var/run/docker/netns/..",
    "/a/./b",
    "//a",
    "/a/",
    "/a\0b",
    "/a\nb",
    "/a\ud800",
    "/é",
    "/$(reboot)",
    "/" + "a" * 256,
    "/a" * 2100,
]


@pytest.mark.parametrize("path", PATHS)
def test_sandbox_keys_that_are_refused(path: str) -> None:
    """A sandbox key is opened by root: `..`, and text that is not a path for Python or the kernel, are refused."""
    with pytest.raises(SchemaError):
        load_validator("cnm/Join")({**BOTH, "SandboxKey": path})


@pytest.mark.parametrize(
    "path",
    [
        "/var/run/docker/netns/0123456789ab",
        "/var/run/docker/netns/default",
        "/var/run/docker/netns/1-8ozq5p9ckb",
        "/run/user/1000/docker/netns/0123456789ab",
        "/proc/4711/ns/net",
        "/srv/docker.d/exec root_2/netns/...x",
    ],
)
def test_sandbox_keys_that_docker_makes(path: str) -> None:
    """Those of a container, of the host's network and of a swarm are accepted, also below other directories."""
    load_validator("cnm/Join")({**BOTH, "SandboxKey": path})


@pytest.mark.parametrize("mac", ["02:42", "02:42:ac:11:00:0g", "02:42:ac:11:00:02\n", "x" * 17, "02:42:ac:11:00:02:03"])
def test_mac_addresses_that_are_refused(mac: str) -> None:
    """A MAC address is passed to plugins: any other text is refused."""
    with pytest.raises(SchemaError):
        load_validator("cnm/CreateEndpoint")({**BOTH, "Interface": {"MacAddress": mac}})


@pytest.mark.parametrize("mac", ["", "02:42:ac:11:00:02", "02:42:AC:11:00:02:03:04", ":".join(["0a"] * 20)])
def test_mac_addresses_that_go_prints(mac: str) -> None:
    """No address, Ethernet, EUI-64 and InfiniBand are accepted."""
    load_validator("cnm/CreateEndpoint")({**BOTH, "Interface": {"MacAddress": mac}})


@pytest.mark.parametrize("address", ["10.0.0.2", "10.0.0.2/24; rm", "fe80::1%eth0/64", "x/24", "0" * 5000 + "/1"])
def test_addresses_that_are_refused(address: str) -> None:
    """Only digits, dots, colons and a prefix length are accepted."""
    for key in ("Address", "AddressIPv6"):
        with pytest.raises(SchemaError):
            load_validator("cnm/CreateEndpoint")({**BOTH, "Interface": {key: address}})


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("cnm/CreateNetwork", lambda: {"IPv4Data": [{"Pool": "0.0.0.0/0"}] * MANY}),
        ("cnm/CreateNetwork", lambda: {"IPv4Data": [0] * MANY}),
        ("cnm/CreateNetwork", lambda: {"Options": {"com.docker.network.generic": {str(i): "" for i in range(MANY)}}}),
        ("cnm/CreateNetwork", lambda: {"Options": {"com.docker.network.generic": {str(i): i for i in range(MANY)}}}),
        ("cnm/CreateNetwork", lambda: {"Options": {"com.docker.network.generic": {"x" * 300: ""}}}),
        ("cnm/CreateEndpoint", lambda: {"Options": {str(i): "" for i in range(MANY)}}),
        ("cnm/CreateEndpoint", lambda: {"Options": {"com.docker.network.portmap": [0] * MANY}}),
    ],
)
@pytest.mark.timeout(10)  # validating them one by one takes minutes, in which no other call is answered
def test_millions_of_anything_are_refused(name: str, make: Callable[[], dict[str, JsonValue]]) -> None:
    """No real request has so many items: their number is checked before the items are."""
    document = {**BOTH, **make()}
    with pytest.raises(SchemaError):
        load_validator(name)(document)


def test_all_ports_are_accepted() -> None:
    """The ports of `docker run --expose 1-65535 --expose 1-65535/udp` are accepted."""
    ports: JsonValue = [{"Proto": proto, "Port": port} for proto in (6, 17) for port in range(1, 65536)]
    load_validator("cnm/CreateEndpoint")(
        {**BOTH, "Options": {"com.docker.network.endpoint.exposedports": ports, "com.docker.network.portmap": None}}
    )
