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


MACS = ["02:42", "02:42:ac:11:00:0g", "02:42:ac:11:00:02\n", "x" * 17, "02:42:ac:11:00:02:03"]
ADDRESSES = ["10.0.0.2", "10.0.0.2/24; rm", "fe80::1%eth0/64", "x/24", "0" * 5000 + "/1"]
IDENTIFIERS = ["", "..", "a/b", "../../etc", "a" * 65, "a" * 64 + "\n", "A" * 64, "é" * 20, "a\0b" * 5]


@pytest.mark.parametrize(
    ("name", "document"),
    [
        *(("Join", {"SandboxKey": path}) for path in PATHS),  # root opens it
        *(("CreateEndpoint", {"Interface": {"MacAddress": mac}}) for mac in MACS),
        *(("CreateEndpoint", {"Interface": {"Address": address}}) for address in ADDRESSES),
        *(("CreateEndpoint", {"Interface": {"AddressIPv6": address}}) for address in ADDRESSES),
        *(("EndpointReference", {"EndpointID": bad}) for bad in IDENTIFIERS),  # parts of paths and names of links
        *(("NetworkReference", {"NetworkID": bad}) for bad in IDENTIFIERS),
    ],
)
def test_what_is_refused(name: str, document: dict[str, JsonValue]) -> None:
    """Any text that is not a path, a MAC, an address with a prefix length or an ID, for Python or the kernel."""
    with pytest.raises(SchemaError):
        load_validator(f"cnm/{name}")({**BOTH, **document})


EXPOSED: JsonValue = [{"Proto": proto, "Port": port} for proto in (6, 17) for port in range(1, 65536)]
"""The ports of `docker run --expose 1-65535 --expose 1-65535/udp`."""
GOOD_PATHS = [
    "/var/run/docker/netns/0123456789ab",
    "/var/run/docker/netns/default",
    "/var/run/docker/netns/1-8ozq5p9ckb",
    "/run/user/1000/docker/netns/0123456789ab",
    "/proc/4711/ns/net",
    "/srv/docker.d/exec root_2/netns/...x",
]


@pytest.mark.parametrize(
    ("name", "document"),
    [
        *(("Join", {"SandboxKey": path}) for path in GOOD_PATHS),
        # no MAC, those of Ethernet, EUI-64 and InfiniBand, as Go prints them
        *(
            ("CreateEndpoint", {"Interface": {"MacAddress": mac}})
            for mac in ("", "02:42:ac:11:00:02", "02:42:AC:11:00:02:03:04", ":".join(["0a"] * 20))
        ),
        (
            "CreateEndpoint",
            {
                "Options": {
                    "com.docker.network.endpoint.exposedports": EXPOSED,
                    "com.docker.network.portmap": None,
                }
            },
        ),
        ("NetworkReference", {"NetworkID": "8ozq5p9ckbt9cjmr7zx0v1b2y"}),  # of a swarm: 25 base-36 digits
    ],
)
def test_what_docker_sends_is_accepted(name: str, document: dict[str, JsonValue]) -> None:
    """Sandboxes of a container, of the host's network and of a swarm, also below other directories; all ports."""
    load_validator(f"cnm/{name}")({**BOTH, **document})


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
