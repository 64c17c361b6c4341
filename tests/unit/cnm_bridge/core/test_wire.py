# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests of dockerd become records, and records replies. The bodies are those of moby, for each engine version."""

from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_network,
)

import pytest

from cni_bridge_spec import JsonObject, JsonValue, load_validator
from cni_bridge_state import PoolRecord, PortRequest, RequestedInterface
from cnm_bridge.core.errors import BadRequest
from cnm_bridge.core.wire import (
    Joined,
    StaticRoute,
    parse_create_endpoint,
    parse_create_network,
    parse_external_connectivity,
    parse_join,
    render_joined,
)

NETWORK = "a1" * 32
ENDPOINT = "e2" * 32


def create_endpoint(**changes: object) -> JsonObject:
    """Return a CreateEndpoint body as Engine 20.10 sends it for `docker run --net N`."""
    body = {
        "NetworkID": NETWORK,
        "EndpointID": ENDPOINT,
        "Interface": {"Address": "", "AddressIPv6": "", "MacAddress": ""},
        "Options": {
            "com.docker.network.endpoint.exposedports": [{"Proto": 6, "Port": 80}],
            "com.docker.network.portmap": [],
        },
        **changes,
    }
    return load_validator("cnm/CreateEndpoint")(body)  # type: ignore[arg-type]  # JSON by construction


def test_create_network() -> None:
    """The user's options, the pools and the internal flag are read; Docker's own options are not."""
    body = load_validator("cnm/CreateNetwork")(
        {
            "NetworkID": NETWORK,
            "Options": {
                "com.docker.network.enable_ipv6": False,
                "com.docker.network.internal": True,
                "com.docker.network.generic": {"cni.network": "blue"},
            },
            "IPv4Data": [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}],
            "IPv6Data": [],
        }
    )
    request = parse_create_network(body)
    assert request.network_id == NETWORK
    assert request.options == {"cni.network": "blue"}
    assert request.internal
    assert request.pools == ()


def test_create_network_with_dockers_ipam() -> None:
    """The pools that Docker chose are read with their gateways, which Docker may not have reserved."""
    body: JsonObject = {
        "NetworkID": NETWORK,
        "IPv4Data": [{"AddressSpace": "LocalDefault", "Pool": "172.19.0.0/16", "Gateway": "172.19.0.1/16"}],
        "IPv6Data": [{"AddressSpace": "LocalDefault", "Pool": "fd00::/64"}],
    }
    assert parse_create_network(load_validator("cnm/CreateNetwork")(body)).pools == (
        PoolRecord(subnet=IPv4Network("172.19.0.0/16"), gateway=IPv4Address("172.19.0.1")),
        PoolRecord(subnet=IPv6Network("fd00::/64"), gateway=None),
    )


def test_an_invalid_pool_is_rejected() -> None:
    """The error has the text of the pool."""
    body: JsonObject = {"NetworkID": NETWORK, "IPv4Data": [{"Pool": "10.300.0.0/16"}]}
    with pytest.raises(BadRequest, match=r"10\.300\.0\.0"):
        parse_create_network(load_validator("cnm/CreateNetwork")(body))


@pytest.mark.parametrize("options", [None, {}, {"com.docker.network.generic": None}])
def test_create_network_without_options(options: JsonObject | None) -> None:
    """A Go map that was never made is null, and means no options."""
    body = load_validator("cnm/CreateNetwork")(
        {"NetworkID": NETWORK, "Options": options, "IPv4Data": None, "IPv6Data": None}
    )
    request = parse_create_network(body)
    assert request.options == {}
    assert not request.internal
    assert request.pools == ()


@pytest.mark.parametrize(("ports", "expected"), [([], False), ([{"Proto": 6, "Port": 80, "HostPort": 8080}], True)])
def test_create_endpoint_with_ports(ports: list[JsonValue], *, expected: bool) -> None:
    """Docker passes the published ports before it has chosen the gateway endpoint."""
    assert parse_create_endpoint(create_endpoint(Options={"com.docker.network.portmap": ports})).has_ports is expected


def test_create_endpoint_with_requested_values() -> None:
    """Addresses, MAC and driver-opts are read."""
    request = parse_create_endpoint(
        create_endpoint(
            Interface={"Address": "10.1.2.3/24", "AddressIPv6": "fd00::3/64", "MacAddress": "02:00:00:00:00:01"},
            Options={
                "com.docker.network.endpoint.macaddress": "AgAAAAAB",
                "com.docker.network.portmap": [{"Proto": 6, "Port": 80, "HostPort": 8080}],
                "cni.ips": "10.1.2.3",
            },
        )
    )
    assert request.requested == RequestedInterface(
        address=IPv4Interface("10.1.2.3/24"), address_ipv6=IPv6Interface("fd00::3/64"), mac="02:00:00:00:00:01"
    )
    assert request.options == {"cni.ips": "10.1.2.3"}


def test_the_users_options_are_separated_from_dockers_own() -> None:
    """The user's are strings; which of them have an effect is decided elsewhere."""
    request = parse_create_endpoint(
        create_endpoint(
            Options={
                "com.docker.network.endpoint.macaddress": "AgAAAAAB",
                "com.docker.network.endpoint.name": "web",
                "com.docker.network.endpoint.dnsservers": ["8.8.8.8"],
                "com.docker.network.endpoint.sysctls": "net.ipv4.conf.IFNAME.rp_filter=2",
                "com.docker.network.endpoint.ifname": "lan0",
                "com.docker.network.other": "x",
            }
        )
    )
    assert request.options == {
        "com.docker.network.endpoint.sysctls": "net.ipv4.conf.IFNAME.rp_filter=2",
        "com.docker.network.endpoint.ifname": "lan0",
        "com.docker.network.other": "x",
    }
    assert request.name_servers == ("8.8.8.8",)


@pytest.mark.parametrize(
    ("options", "families"),
    [
        ({"com.docker.network.enable_ipv6": True}, (None, True)),
        ({"com.docker.network.enable_ipv4": False, "com.docker.network.enable_ipv6": False}, (False, False)),
    ],
)
def test_address_families(options: JsonObject, families: tuple[bool | None, bool]) -> None:
    """Engine 28 and newer also say whether a network has IPv4."""
    body: JsonObject = {"NetworkID": NETWORK, "Options": options}
    request = parse_create_network(load_validator("cnm/CreateNetwork")(body))
    assert (request.ipv4, request.ipv6) == families


def test_an_invalid_mac_in_the_options_is_rejected() -> None:
    """The error names the option."""
    options: JsonObject = {"com.docker.network.endpoint.macaddress": "?"}
    with pytest.raises(BadRequest, match="macaddress"):
        parse_create_endpoint(create_endpoint(Options=options))


PORT: JsonObject = {"Proto": 6, "IP": "", "Port": 80, "HostIP": "", "HostPort": 8080, "HostPortEnd": 8080}


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        (None, ()),
        ({"com.docker.network.endpoint.exposedports": [{"Proto": 6, "Port": 80}]}, ()),
        ({"com.docker.network.portmap": []}, ()),
        (
            {"com.docker.network.portmap": [PORT]},
            (PortRequest(protocol=6, container_port=80, host_ip=None, host_port=8080, host_port_end=8080),),
        ),
        (
            {"com.docker.network.portmap": [{"Proto": 132, "Port": 80, "HostIP": "::1"}]},
            (PortRequest(protocol=132, container_port=80, host_ip=IPv6Address("::1"), host_port=0, host_port_end=0),),
        ),
    ],
)
def test_published_ports(options: JsonObject | None, ports: tuple[PortRequest, ...]) -> None:
    """Exposed ports are not published."""
    body = {"NetworkID": NETWORK, "EndpointID": ENDPOINT, "Options": options}
    request = parse_external_connectivity(load_validator("cnm/ProgramExternalConnectivity")(body))
    assert request.ports == ports


def test_an_invalid_host_address_is_rejected() -> None:
    """The error has the text of the address."""
    body: JsonObject = {
        "NetworkID": NETWORK,
        "EndpointID": ENDPOINT,
        "Options": {"com.docker.network.portmap": [{**PORT, "HostIP": "10.1.2.300"}]},
    }
    with pytest.raises(BadRequest, match=r"10\.1\.2\.300"):
        parse_external_connectivity(load_validator("cnm/ProgramExternalConnectivity")(body))


@pytest.mark.parametrize("absent", [{"Interface": None}, {"Options": None}, {"Interface": {}, "Options": {}}])
def test_create_endpoint_with_parts_absent(absent: dict[str, object]) -> None:
    """Null or missing parts request nothing."""
    assert parse_create_endpoint(create_endpoint(**absent)).requested == RequestedInterface()


def test_an_invalid_address_is_rejected() -> None:
    """The error has the text of the address."""
    with pytest.raises(BadRequest, match=r"10\.1\.2\.300"):
        parse_create_endpoint(create_endpoint(Interface={"Address": "10.1.2.300/24"}))


@pytest.mark.parametrize(
    ("options", "has_ports"),
    [
        ({}, False),
        ({"Options": None}, False),
        ({"Options": {"com.docker.network.portmap": []}}, False),
        ({"Options": {"com.docker.network.portmap": [{"Proto": 6, "Port": 80}]}}, True),
    ],
)
def test_join_says_whether_the_container_has_ports(options: JsonObject, has_ports: bool) -> None:
    """It does so on whatever network they are published."""
    body: JsonObject = {"NetworkID": NETWORK, "EndpointID": ENDPOINT, "SandboxKey": "/var/run/docker/netns/0"}
    assert bool(parse_join(load_validator("cnm/Join")({**body, **options})).ports) is has_ports


def test_the_reply_to_join() -> None:
    """Gateways have their own keys; routes are connected (1) or have a next hop (0)."""
    reply = Joined(
        prefix="eth",
        link="cnib0123",
        gateway=ip_address("10.22.0.1"),  # type: ignore[arg-type]
        gateway_ipv6=ip_address("fe80::1"),  # type: ignore[arg-type]
        routes=(
            StaticRoute(destination=ip_network("fe80::1/128")),
            StaticRoute(destination=ip_network("10.9.0.0/16"), next_hop=ip_address("10.22.0.9")),
        ),
    )
    assert render_joined(reply) == {
        "InterfaceName": {"SrcName": "cnib0123", "DstPrefix": "eth"},
        "Gateway": "10.22.0.1",
        "GatewayIPv6": "fe80::1",
        "StaticRoutes": [
            {"Destination": "fe80::1/128", "RouteType": 1},
            {"Destination": "10.9.0.0/16", "RouteType": 0, "NextHop": "10.22.0.9"},
        ],
        "DisableGatewayService": True,
    }
