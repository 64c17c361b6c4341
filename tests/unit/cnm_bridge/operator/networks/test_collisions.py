# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each thing that is in the way of a network is found, alone, with its place and a remedy."""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.lists.plugins import bridges
from cnm_bridge.operator.host import HostLink, HostRoute
from cnm_bridge.operator.networks.collisions import HostFacts, find_collisions
from cnm_bridge.operator.networks.list_document import make_list
from cnm_bridge.operator.networks.wanted import WantedNetwork, parse_wanted

BLUE = parse_wanted("blue", subnets=["10.22.0.0/16", "fd22::/64"])
LAN = parse_wanted("lan", subnets=["192.0.2.0/24"], ranges=["192.0.2.64/26"], parent="eth0", mtu=1500)
STATIC: JsonObject = {"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.22.7.7/24"}]}}
ISOLATED = parse_wanted("blue", subnets=["10.22.0.0/16"], isolated=True)


def link(*addresses: str, kind: str | None = "bridge", mtu: int = 1500) -> HostLink:
    """Return a link of the host."""
    return HostLink(kind=kind, mtu=mtu, addresses=tuple(map(ip_interface, addresses)))


def route(destination: str, link: str) -> HostRoute:
    """Return a route of the host."""
    return HostRoute(destination=ip_network(destination), link=link)


def listed(*plugins: JsonObject, name: str = "red") -> NetworkConfigurationList:
    """Return another list of the host."""
    return NetworkConfigurationList.from_document(
        {"cniVersion": "1.0.0", "name": name, "plugins": list(plugins)}, source=Path(f"/etc/cni/net.d/{name}.conflist")
    )


def ranged(subnet: str, **limits: str) -> JsonObject:
    """Return a plugin with a range."""
    return {"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet, **limits}]]}}


HOST = HostFacts(
    links={"lo": link("127.0.0.1/8", "::1/128", kind=None), "eth0": link("192.0.2.7/24", "fe80::7/64", kind=None)},
    routes=(
        route("0.0.0.0/0", "eth0"),
        route("::/0", "eth0"),
        route("192.0.2.0/24", "eth0"),
        route("172.17.0.0/16", "docker0"),
    ),
    docker_networks=frozenset({"bridge", "host", "none"}),
    docker_subnets=(("bridge", ip_network("172.17.0.0/16")),),
    lists=(listed(ranged("10.9.0.0/16"), {"type": "bridge"}),),
)


@pytest.mark.parametrize(
    ("wanted", "changed"),
    [
        *((wanted, {}) for wanted in (BLUE, LAN, ISOLATED)),
        # routes of a VPN lead to its router or tunnel, whose addresses are others
        (BLUE, {"routes": (*HOST.routes, route("0.0.0.0/1", "tun0"), route("128.0.0.0/1", "tun0"))}),
        (BLUE, {"routes": (*HOST.routes, route("10.0.0.0/8", "tun0"))}),
        # an operator may have reasons for an overlap
        (replace(BLUE, may_overlap=True), {"docker_subnets": (("shop", ip_network("10.22.4.0/24")),)}),
    ],
)
def test_nothing_is_in_the_way(wanted: WantedNetwork, changed: Mapping[str, Any]) -> None:
    """Default routes are not, nor is the LAN that a parent leads to."""
    assert list(find_collisions(wanted, replace(HOST, **changed))) == []


def test_a_name_of_dockers_own() -> None:
    """Such a network cannot be removed."""
    (found,) = find_collisions(replace(BLUE, name="bridge"), replace(HOST, docker_networks=frozenset({"bridge"})))
    assert found == "Docker keeps the name bridge for a network of its own; choose another NAME"


def test_a_bridge_of_before() -> None:
    """The plugin leaves it behind, with its address and route; the same network can be made again."""
    former = replace(
        HOST,
        links={**HOST.links, "cni-blue": link("10.22.0.1/16", "fd22::1/64", "fe80::1/64")},
        routes=(*HOST.routes, route("10.22.0.0/16", "cni-blue"), route("fe80::/64", "cni-blue")),
    )
    assert list(find_collisions(BLUE, former)) == []
    (found,) = find_collisions(ISOLATED, replace(former, links={"cni-blue": link("10.22.0.1/16")}))
    assert "with the address 10.22.0.1/16" in found


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"docker_networks": frozenset({"blue"})}, ("blue already exists", "docker network rm blue")),
        (
            {"lists": (listed(ranged("10.9.0.0/16"), name="blue"),)},
            ("/etc/cni/net.d/blue.conflist already has", "cni-bridge network rm --configuration blue"),
        ),
        (
            {
                "docker_networks": frozenset({"blue"}),
                "is_network_of_list": True,
                "lists": (listed({**ranged("10.9.0.0/16"), "type": "bridge", "bridge": "cni-blue"}, name="blue"),),
                "links": {"cni-blue": link("10.9.0.1/16")},
            },
            (
                "blue already exists, with its list in /etc/cni/net.d/blue.conflist",
                "once no container is on it: cni-bridge network rm --configuration blue",
            ),
        ),
        ({"paths": frozenset({Path("/etc/cni/net.d/blue")})}, ("/etc/cni/net.d/blue exists", "move it away")),
        (
            {"docker_subnets": (("shop", ip_network("10.22.4.0/24")),)},
            ("10.22.0.0/16 overlaps 10.22.4.0/24 of the Docker network shop", "another --subnet"),
        ),
        (
            {"lists": (listed(ranged("fd22::/80")),)},
            ("fd22::/64 overlaps fd22::/80 of the list red in /etc/cni/net.d/red.conflist", "another --subnet"),
        ),
        (
            {"lists": (listed(ranged("10.22.0.0/16", rangeStart="10.22.7.7", rangeEnd="10.22.7.9")),)},
            ("10.22.0.0/16 overlaps 10.22.0.0/16 of the list red", "another --subnet"),
        ),
        ({"lists": (listed(STATIC),)}, ("has the address 10.22.7.7 of the list red", "another --subnet")),
        (
            {"links": {"eth9": link("10.0.0.7/8", kind=None)}, "routes": (route("10.0.0.0/8", "eth9"),)},
            ("overlaps the host's route to 10.0.0.0/8 through eth9; choose another --subnet; or add --allow-overlap",),
        ),
        (
            {"routes": (route("10.22.0.0/16", "wg0"),)},
            ("overlaps the host's route to 10.22.0.0/16 through wg0", "another --subnet"),
        ),
        (
            {"links": {"cni-late": link("10.22.0.1/16")}, "routes": (route("10.22.0.0/16", "cni-late"),)},
            (
                "through cni-late, an unused bridge (ip link delete cni-late, if",
                "another --subnet",
            ),
        ),
        ({"routes": (route("10.22.0.0/24", ""),)}, ("overlaps the host's route to 10.22.0.0/24;", "another --subnet")),
        (
            {"links": {"eth9": link("10.22.3.4/32", kind=None)}},
            ("has the host's address 10.22.3.4/32 on eth9", "another --subnet"),
        ),
        (
            {"lists": (listed({"type": "bridge", "bridge": "cni-blue"}),)},
            ("the list red in /etc/cni/net.d/red.conflist uses the bridge cni-blue", "choose another NAME"),
        ),
        (
            {"links": {"cni-blue": link("10.9.9.9/16")}},
            ("the bridge cni-blue exists with the address 10.9.9.9/16", "ip link del cni-blue"),
        ),
        (
            {"links": {"cni-blue": link("10.22.0.1/24")}},
            ("the bridge cni-blue exists with the address 10.22.0.1/24", "ip link del cni-blue"),
        ),
        ({"links": {"cni-blue": link(kind="dummy")}}, ("cni-blue exists and is not a bridge", "ip link del")),
    ],
)
def test_what_is_in_the_way_of_a_bridge(changed: Mapping[str, Any], parts: tuple[str, ...]) -> None:
    """Once for each cause."""
    (found,) = find_collisions(BLUE, replace(HOST, **changed))
    assert [part for part in parts if part not in found] == []


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"links": {"eth1": link(kind=None)}}, ("no link eth0", "did you mean eth1?")),
        ({"links": {"uplink": link(kind=None)}}, ("no link eth0", "`ip link` shows all")),
        ({"links": {"eth0": link(kind=None, mtu=1400)}}, ("--mtu 1500", "the MTU of eth0, 1400")),
        (
            {"links": {"eth0": link("192.0.2.99/24", kind=None)}},
            ("192.0.2.64 to 192.0.2.127 has the host's own address 192.0.2.99 on eth0", "--range"),
        ),
        (
            {"lists": (listed(ranged("192.0.2.0/24", rangeStart="192.0.2.100", rangeEnd="192.0.2.140")),)},
            ("overlaps 192.0.2.0/24 of the list red", "--range"),
        ),
        ({"docker_subnets": (("old", ip_network("192.0.2.0/24")),)}, ("of the Docker network old", "--subnet")),
    ],
)
def test_what_is_in_the_way_on_a_lan(changed: Mapping[str, Any], parts: tuple[str, ...]) -> None:
    """The LAN's own subnet is not, nor is another network on it with other addresses."""
    (found,) = find_collisions(LAN, replace(HOST, **changed))
    assert [part for part in parts if part not in found] == []


def test_two_networks_on_one_lan() -> None:
    """Their ranges are apart; a bridge may not share a subnet even so."""
    other = listed(ranged("192.0.2.0/24", rangeStart="192.0.2.140", rangeEnd="192.0.2.150"))
    assert list(find_collisions(LAN, replace(HOST, lists=(other,)))) == []
    bridged = parse_wanted("blue", subnets=["192.0.2.0/24"], ranges=["192.0.2.64/26"])
    (found,) = find_collisions(bridged, HostFacts(lists=(other,)))
    assert "overlaps 192.0.2.0/24 of the list red" in found
    gateway = replace(HOST, links={"eth0": link("192.0.2.65/24", kind=None)})
    shared = parse_wanted(
        "lan", subnets=["192.0.2.0/24"], gateways=["192.0.2.65"], ranges=["192.0.2.64/26"], parent="eth0"
    )
    assert list(find_collisions(shared, gateway)) == []


def test_several_causes() -> None:
    """All are reported, so that one correction is enough."""
    host = replace(HOST, docker_networks=frozenset({"blue"}), routes=(route("10.22.0.0/16", "eth9"),))
    assert len(list(find_collisions(BLUE, host))) == 2


def test_the_bridges_of_a_list() -> None:
    """A plugin `bridge` without a name uses cni0."""
    assert set(bridges(listed({"type": "bridge"}, {"type": "bridge", "bridge": "br1"}))) == {"cni0", "br1"}
    document = make_list(BLUE)
    assert set(bridges(NetworkConfigurationList.from_document(document))) == {"cni-blue"}


def test_a_bridge_that_something_uses() -> None:
    """Its removal is not suggested."""
    found = replace(HOST, links={"b0": link("10.22.0.1/16")}, routes=(route("10.22.0.0/16", "b0"),))
    by_link = replace(found, links={"b0": replace(found.links["b0"], has_ports=True)})
    for used in (by_link, replace(found, lists=(listed({"type": "bridge", "bridge": "b0"}),))):
        assert [" through b0; choose another --subnet" in text for text in find_collisions(BLUE, used)] == [True]
