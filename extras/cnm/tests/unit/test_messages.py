# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a driver is sent, and what becomes of its answers. Our daemon's schemas say what dockerd sends."""

import base64

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_object, get_objects, load_validator
from cni_invoker import Result, Verb
from cni_plugin import Call, CallError
from cnm_plugin.link import render_commands
from cnm_plugin.messages import Joined, Settings, chosen_interface, create_endpoint, create_network, identity

ASSIGNED = Result.from_document(
    {
        "cniVersion": "1.1.0",
        "ips": [
            {"address": "10.1.0.9/24", "gateway": "10.1.0.1"},
            {"address": "fd99::9/64"},
            {"address": "10.1.0.10/24"},
        ],
    }
)
IDS: JsonObject = {"NetworkID": identity("n"), "EndpointID": identity("e")}
NO_INTERFACE = {"Address": "", "AddressIPv6": "", "MacAddress": ""}


def settings(**config: JsonValue) -> Settings:
    """Settings from a configuration."""
    return Settings.of_call(Call(Verb.ADD, b"", {"driver": "other", **config}, "1.1.0"))


PORTS: list[JsonValue] = [
    {"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "127.0.0.1"},
    {"hostPort": 1, "containerPort": 2},
]


def test_create_network() -> None:
    """The first address of each family gives the subnet; without an IPAM plugin it is Docker's null IPAM."""
    body = create_network(identity("n"), settings(internal=True, options={"k": "v"}), ASSIGNED)
    load_validator("cnm/CreateNetwork")(body)
    assert body["Options"] == {
        "com.docker.network.enable_ipv6": True,
        "com.docker.network.generic": {"k": "v"},
        "com.docker.network.internal": True,
    }
    assert body["IPv4Data"] == [{"AddressSpace": "LocalDefault", "Pool": "10.1.0.0/24", "Gateway": "10.1.0.1/24"}]
    assert body["IPv6Data"] == [{"AddressSpace": "LocalDefault", "Pool": "fd99::/64"}]
    body = create_network(identity("n"), settings(), None)
    load_validator("cnm/CreateNetwork")(body)
    assert (body["IPv4Data"], body["IPv6Data"]) == ([{"AddressSpace": "null", "Pool": "0.0.0.0/0"}], [])


def test_create_endpoint() -> None:
    """Addresses, MAC, ports and options, in Docker's form."""
    given = settings(endpointOptions={"weight": "3"}, runtimeConfig={"mac": "c2:11:22:33:44:55", "portMappings": PORTS})
    body = create_endpoint(IDS, given, ASSIGNED)
    load_validator("cnm/CreateEndpoint")(body)
    expected = {"Address": "10.1.0.9/24", "AddressIPv6": "fd99::9/64", "MacAddress": "c2:11:22:33:44:55"}
    assert body["Interface"] == expected
    options = get_object(body, "Options")
    assert options["weight"] == "3"
    assert base64.b64decode(str(options["com.docker.network.endpoint.macaddress"])).hex(":") == "c2:11:22:33:44:55"
    one, two = get_objects(options, "com.docker.network.portmap")
    assert one == {"Proto": 17, "IP": "", "Port": 80, "HostIP": "127.0.0.1", "HostPort": 8080, "HostPortEnd": 8080}
    assert two["Proto"] == 6
    assert options["com.docker.network.endpoint.exposedports"] == [{"Proto": 17, "Port": 80}, {"Proto": 6, "Port": 2}]
    assert create_endpoint(IDS, settings(), None)["Interface"] == NO_INTERFACE


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"driver": None}, "driver is missing"),
        ({"options": {"k": 1}}, "option k must be a string"),
        ({"endpointOptions": []}, "endpointOptions must be an object"),
        ({"internal": "yes"}, "internal must be a boolean"),
        ({"runtimeConfig": {"mac": "c2:11"}}, "mac 'c2:11' is not an Ethernet address"),
        ({"runtimeConfig": {"mac": "here"}}, "mac 'here' is not an Ethernet address"),
        ({"runtimeConfig": {"portMappings": [{"hostPort": 1}]}}, "containerPort is missing"),
        (
            {"runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 2, "protocol": "icmp"}]}},
            "protocol 'icmp' is not one of",
        ),
    ],
)
def test_invalid_configurations(config: JsonObject, reason: str) -> None:
    """The error has code 7 and names the key."""
    with pytest.raises(CallError, match=reason) as failed:
        settings(**config)
    assert failed.value.code == 7


def test_what_the_driver_chooses() -> None:
    """It may choose what it was not given, and nothing else."""
    chosen: JsonObject = {"Interface": {"Address": "10.1.0.2/24", "MacAddress": "02:00:00:00:00:01"}}
    interface = chosen_interface(chosen, None, "")
    assert interface == {"Address": "10.1.0.2/24", "AddressIPv6": "", "MacAddress": "02:00:00:00:00:01"}
    assert chosen_interface({}, ASSIGNED, "")["Address"] == "10.1.0.9/24"
    with pytest.raises(CallError, match=r"modified interface Address: 10\.1\.0\.9/24 cannot become 10\.1\.0\.2/24"):
        chosen_interface(chosen, ASSIGNED, "")


def test_joined() -> None:
    """Routes on the link come before those that need them."""
    joined = Joined.from_reply(
        {
            "InterfaceName": {"SrcName": "rd2", "DstPrefix": "eth"},
            "Gateway": "10.1.0.1",
            "GatewayIPv6": "",
            "StaticRoutes": [
                {"Destination": "10.9.0.0/16", "RouteType": 0, "NextHop": "169.254.1.1"},
                {"Destination": "169.254.1.1/32", "RouteType": 1},
            ],
        }
    )
    routes = (("169.254.1.1/32", None), ("10.9.0.0/16", "169.254.1.1"))
    assert joined == Joined(link="rd2", gateways={4: "10.1.0.1"}, routes=routes)
    assert Joined.from_reply({"InterfaceName": None, "StaticRoutes": None}) == Joined(link="", gateways={}, routes=())


def test_commands() -> None:
    """The link is complete before it is up, and has its routes after that."""
    interface = {"Address": "10.1.0.9/24", "AddressIPv6": "fd99::9/64", "MacAddress": "02:00:00:00:00:01"}
    routes = (("169.254.1.1/32", None), ("0.0.0.0/0", "169.254.1.1"))
    assert render_commands("mark", "eth0", interface, routes).splitlines() == [
        "link set dev mark name eth0",
        "link set dev eth0 address 02:00:00:00:00:01",
        "address add 10.1.0.9/24 dev eth0",
        "address add fd99::9/64 dev eth0 nodad",
        "link set dev eth0 up",
        "route add 169.254.1.1/32 dev eth0",
        "route add 0.0.0.0/0 via 169.254.1.1 dev eth0",
        "link show dev eth0",
    ]


@pytest.mark.parametrize("wrong", ["10.1.0.9\nlink delete dev eth0", "here", "10.1.0.9/33"])
def test_a_driver_cannot_inject_commands(wrong: str) -> None:
    """Whatever is not an address is refused."""
    with pytest.raises(CallError, match="the driver's answer is invalid"):
        render_commands("mark", "eth0", {**NO_INTERFACE, "Address": wrong}, ())
    with pytest.raises(CallError, match="the driver's answer is invalid"):
        render_commands("mark", "eth0", NO_INTERFACE, (("0.0.0.0/0", wrong),))
