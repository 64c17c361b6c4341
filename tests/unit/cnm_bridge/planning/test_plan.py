# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is asked for reaches the plugins in the one way that they know, and what they ignored is found out."""

import re
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_network

import pytest

from cni_invoker import NetworkConfigurationList
from cnm_bridge.errors import Refused
from cnm_bridge.kernel import MAIN_TABLE, Address, IpInterface, LinkState, Route, Snapshot
from cnm_bridge.planning.options import parse_options
from cnm_bridge.planning.plan import Plan, plan_attachment, refuse_ignored
from spec import JsonObject
from state import PoolRecord, RequestedInterface

MAC = "02:11:22:33:44:55"
HOST_LOCAL: JsonObject = {"type": "host-local", "subnet": "10.1.0.0/24"}


def network(*plugins: JsonObject) -> NetworkConfigurationList:
    """Return a list of these plugins."""
    return NetworkConfigurationList.from_document({"cniVersion": "1.0.0", "name": "blue", "plugins": list(plugins)})


def plan(
    *plugins: JsonObject,
    requested: RequestedInterface | None = None,
    pools: tuple[PoolRecord, ...] = (),
    internal: bool = False,
    **options: str,
) -> Plan:
    """Return the plan for options, whose names have `_` for `.`."""
    parsed = parse_options({f"cni.{key}".replace("_", "."): value for key, value in options.items()})
    return plan_attachment(network(*plugins), parsed, requested or RequestedInterface(), pools, internal=internal)


def documents(planned: Plan) -> list[JsonObject]:
    """Return the plugins' configurations."""
    return [plugin.document for plugin in planned.configuration.plugins]


def pool(subnet: str, gateway: str | None = None) -> PoolRecord:
    """Return a pool of Docker's."""
    return PoolRecord(subnet=ip_network(subnet), gateway=ip_address(gateway) if gateway else None)


def test_nothing_asked_for() -> None:
    """The list is as it was, to the byte; there are no CNI_ARGS."""
    planned = plan({"type": "bridge", "ipam": HOST_LOCAL})
    assert planned == Plan(configuration=network({"type": "bridge", "ipam": HOST_LOCAL}))
    assert documents(planned) == [{"type": "bridge", "ipam": HOST_LOCAL}]


def test_addresses_that_no_ipam_plugin_reserves() -> None:
    """They may be another endpoint's yet: those that are asked for, in all ways, and those that `static` has."""
    static: JsonObject = {"type": "static", "addresses": [{"address": "10.1.0.8/24"}, {"address": "fd00::8/64"}]}
    requested = RequestedInterface(address=IPv4Interface("10.1.0.9/24"))
    found = {
        "none": plan({"type": "bridge", "ipam": HOST_LOCAL}).fixed_addresses,
        "list": plan({"type": "bridge", "ipam": static}).fixed_addresses,
        "option": plan({"type": "bridge", "ipam": HOST_LOCAL}, ips="10.1.0.7").fixed_addresses,
        "argument": plan({"type": "bridge", "ipam": static}, args_IP="10.1.0.6/24,fd00::6/64").fixed_addresses,
        "Docker's": plan({"type": "bridge"}, requested=requested).fixed_addresses,
        "nonsense": plan({"type": "bridge", "ipam": {"type": "static", "addresses": [{}]}}).fixed_addresses,
    }
    assert {key: sorted(map(str, addresses)) for key, addresses in found.items()} == {
        "none": [],
        "list": ["10.1.0.8", "fd00::8"],
        "option": ["10.1.0.7"],
        "argument": ["10.1.0.6", "10.1.0.8", "fd00::6", "fd00::8"],
        "Docker's": ["10.1.0.9"],
        "nonsense": [],
    }


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ({"type": "bridge", "ipam": {"type": "host-local", "ranges": "all"}}, "ranges must be an array"),
        ({"type": "bridge", "ipam": {"type": "host-local", "subnet": 5}}, "subnet must be a string"),
        ({"type": "bridge", "args": {"cni": 5}}, "cni must be an object"),
    ],
)
def test_a_list_that_its_plugins_could_not_read(plugin: JsonObject, said: str) -> None:
    """It is named, and what is wrong with it."""
    with pytest.raises(Refused, match=f"CNI configuration blue .* cannot be used: {said}"):
        plan(plugin, pools=(pool("10.1.0.0/24"),), labels_a="b")


def test_addresses_by_capability() -> None:
    """Whoever declares `ips` is told so, and nobody otherwise."""
    plugins: list[JsonObject] = [{"type": "bridge", "ipam": HOST_LOCAL, "capabilities": {"ips": True}}]
    planned = plan(*plugins, ips="10.1.0.9")
    assert planned.capability_args == {"ips": ["10.1.0.9"]}
    assert planned.args == ()
    assert documents(planned) == plugins


def test_addresses_by_args() -> None:
    """host-local reads `args.cni.ips`; what is there otherwise stays."""
    planned = plan(
        {"type": "bridge", "ipam": HOST_LOCAL, "args": {"x": 1, "cni": {"y": 2}}}, {"type": "a"}, ips="10.1.0.9"
    )
    assert documents(planned) == [
        {"type": "bridge", "ipam": HOST_LOCAL, "args": {"x": 1, "cni": {"y": 2, "ips": ["10.1.0.9"]}}},
        {"type": "a"},
    ]
    assert (planned.args, planned.capability_args) == ((), {})


def test_addresses_for_others() -> None:
    """Any other IPAM plugin is told in both ways that it might read."""
    planned = plan({"type": "calico", "ipam": {"type": "calico-ipam"}}, ips="10.1.0.9/24")
    assert documents(planned)[0]["args"] == {"cni": {"ips": ["10.1.0.9/24"]}}
    assert planned.args == (("IgnoreUnknown", "1"), ("IP", "10.1.0.9"))


@pytest.mark.parametrize("ipam", [None, {}, {"type": "dhcp", "daemonSocketPath": "/x"}])
def test_addresses_without_ipam(ipam: JsonObject | None) -> None:
    """`static` takes the place of no IPAM plugin, or of one that cannot work here."""
    plugins: JsonObject = {"type": "bridge"} if ipam is None else {"type": "bridge", "ipam": ipam}
    found = documents(plan(plugins, ips="10.1.0.9/24"))[0]["ipam"]
    assert isinstance(found, dict)
    assert (found["type"], found["addresses"]) == ("static", [{"address": "10.1.0.9/24"}])
    with pytest.raises(Refused, match=r"cni\.ips=10\.1\.0\.9/24"):
        plan(plugins, ips="10.1.0.9")


@pytest.mark.parametrize("internal", [False, True])
def test_dockers_choice_without_ipam(*, internal: bool) -> None:
    """Docker's gateway goes along, and the default route, but for an internal network."""
    requested = RequestedInterface(address=IPv4Interface("10.1.0.9/24"), address_ipv6=IPv6Interface("fd00::9/64"))
    pools = (pool("10.1.0.0/24", "10.1.0.1"), pool("fd00::/64", "fd00::1"))
    found = documents(plan({"type": "bridge"}, requested=requested, pools=pools, internal=internal))[0]["ipam"]
    routes = [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}, {"dst": "::/0", "gw": "fd00::1"}]
    assert found == {
        "type": "static",
        "addresses": [
            {"address": "10.1.0.9/24", "gateway": "10.1.0.1"},
            {"address": "fd00::9/64", "gateway": "fd00::1"},
        ],
        **({} if internal else {"routes": routes}),
    }


def test_dockers_pool_must_be_the_lists() -> None:
    """host-local's ranges are known, in both of its ways to write them; its gateway is the first address."""
    ranges: JsonObject = {
        "type": "host-local",
        "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64", "gateway": "fd00::9"}]],
    }
    plan({"type": "bridge", "ipam": ranges}, pools=(pool("10.1.0.0/24", "10.1.0.1"), pool("fd00::/64", "fd00::9")))
    plan({"type": "bridge", "ipam": HOST_LOCAL}, pools=(pool("10.1.0.0/24"),))
    with pytest.raises(Refused, match=r"10\.2\.0\.0/24.*has 10\.1\.0\.0/24, fd00::/64"):
        plan({"type": "bridge", "ipam": ranges}, pools=(pool("10.2.0.0/24"),))
    with pytest.raises(Refused, match=re.escape("--gateway fd00::9")):
        plan({"type": "bridge", "ipam": ranges}, pools=(pool("fd00::/64", "fd00::1"),))
    with pytest.raises(Refused, match=re.escape("has none")):
        plan(
            {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "?"}]]}},
            pools=(pool("10.2.0.0/24"),),
        )


def test_dockers_choice_and_ours() -> None:
    """The same address may be asked for twice, another of the family not; another family may."""
    requested = RequestedInterface(address=IPv4Interface("10.1.0.9/24"))
    assert plan({"type": "bridge", "ipam": HOST_LOCAL}, requested=requested, ips="10.1.0.9,fd00::9").addresses == (
        IPv4Interface("10.1.0.9/24"),
        ip_address("fd00::9"),
    )
    with pytest.raises(Refused, match=r"10\.1\.0\.8"):
        plan({"type": "bridge", "ipam": HOST_LOCAL}, requested=requested, ips="10.1.0.8")


@pytest.mark.parametrize(
    ("plugin", "args", "capability_args"),
    [
        ({"type": "x", "capabilities": {"mac": True}}, (), {"mac": MAC}),
        ({"type": "bridge", "capabilities": {"mac": True}}, (), {"mac": MAC}),
        ({"type": "macvlan"}, (("IgnoreUnknown", "1"), ("MAC", MAC)), {}),
        ({"type": "ptp"}, (), {}),
    ],
)
def test_a_mac(plugin: JsonObject, args: tuple[tuple[str, str], ...], capability_args: JsonObject) -> None:
    """It is told by capability, else as an argument to those that read it, else nobody is told."""
    planned = plan(plugin, requested=RequestedInterface(mac=MAC))
    assert (planned.args, planned.capability_args) == (args, capability_args)
    assert planned.passes_mac is bool(args or capability_args)


def test_a_groups_mac() -> None:
    """A multicast address is no link's."""
    with pytest.raises(Refused, match=re.escape("a multicast address")):
        plan({"type": "bridge"}, requested=RequestedInterface(mac="01:00:5e:00:00:01"))


def test_arguments_and_labels() -> None:
    """Arguments come after the one that lets plugins ignore them; labels are in every plugin's configuration."""
    planned = plan({"type": "a"}, {"type": "b"}, args_X="1", labels_app="web")
    assert planned.args == (("IgnoreUnknown", "1"), ("X", "1"))
    labels = {"cni": {"labels": [{"key": "app", "value": "web"}]}}
    assert documents(planned) == [{"type": "a", "args": labels}, {"type": "b", "args": labels}]


def test_labels_beside_the_lists_own() -> None:
    """Those of the list stay, but for one of the same key."""
    own: JsonObject = {"cni": {"labels": [{"key": "app", "value": "old"}, {"key": "zone", "value": "a"}], "x": 1}}
    (document,) = documents(plan({"type": "a", "args": own}, labels_app="web"))
    labels = [{"key": "zone", "value": "a"}, {"key": "app", "value": "web"}]
    assert document["args"] == {"cni": {"labels": labels, "x": 1}}


def test_capabilities() -> None:
    """A capability goes on where a plugin declares it; where none does, it says what to add."""
    assert plan({"type": "a", "capabilities": {"x": True}}, capability_x="[1]").capability_args == {"x": [1]}
    # As the command line of Docker makes it.
    declared: JsonObject = {"type": "a", "capabilities": {"deviceID": True}}
    assert plan(declared, capability_deviceid="1").capability_args == {"deviceID": 1}
    with pytest.raises(Refused, match=re.escape('"capabilities": { "x": true }')):
        plan({"type": "a"}, capability_x="[1]")
    with pytest.raises(Refused, match=re.escape('"type": "bandwidth"')):
        plan_attachment(
            network({"type": "a"}),
            parse_options({"cni.bandwidth.egress-rate": "1M"}),
            RequestedInterface(),
            (),
            internal=False,
        )


def snapshot(*addresses: str, mac: str = MAC, kind: str | None = "veth", prefix_route: bool = True) -> Snapshot:
    """Return what plugins left: a link with these addresses."""
    interfaces = [IPv6Interface(text) if ":" in text else IPv4Interface(text) for text in addresses]
    return Snapshot(
        link=LinkState(name="eth0", kind=kind, mac=mac, mtu=1500, noarp=False),
        addresses=tuple(_address(interface) for interface in interfaces),
        routes=tuple(_route(interface) for interface in interfaces) if prefix_route else (),
    )


def _address(interface: IpInterface) -> Address:
    return Address(address=interface, peer=None, scope=0, flags=0x80)


def _route(interface: IpInterface) -> Route:
    return Route(
        destination=interface.network, gateway=None, table=MAIN_TABLE, metric=0, type=1, scope=253, protocol=2,
        source=None, onlink=False, mtu=None, advmss=None,
    )  # fmt: skip


def test_what_was_made_as_asked() -> None:
    """Prefixes count where they were asked for."""
    planned = plan({"type": "bridge", "ipam": HOST_LOCAL}, ips="10.1.0.9,fd00::9/64")
    refuse_ignored(planned, snapshot("10.1.0.9/24", "fd00::9/64", "10.1.0.10/24"))
    with pytest.raises(Refused, match=re.escape("did not give fd00::9/64, they gave 10.1.0.9/24, fd00::9/80")):
        refuse_ignored(planned, snapshot("10.1.0.9/24", "fd00::9/80"))
    with pytest.raises(Refused, match=r"did not give 10\.1\.0\.9, they gave none"):
        refuse_ignored(planned, snapshot())


def test_what_docker_would_not_know() -> None:
    """Docker's choice must be the first address of its family, with the prefix that it will have."""
    requested = RequestedInterface(address=IPv4Interface("10.1.0.9/24"))
    planned = plan({"type": "ptp", "ipam": HOST_LOCAL}, requested=requested)
    refuse_ignored(planned, snapshot("10.1.0.9/24"))
    with pytest.raises(Refused, match=re.escape("10.1.0.9/32")):
        refuse_ignored(planned, snapshot("10.1.0.9/24", prefix_route=False))
    with pytest.raises(Refused, match=re.escape("10.1.0.8/24")):
        refuse_ignored(planned, snapshot("10.1.0.8/24", "10.1.0.9/24"))


@pytest.mark.parametrize(
    ("plugin", "kind", "said"),
    [
        ({"type": "bridge"}, "veth", "ignored the requested MAC"),
        ({"type": "x", "capabilities": {"mac": True}}, "veth", "ignored the requested MAC"),
        ({"type": "ipvlan"}, "ipvlan", "cannot be set"),
        ({"type": "ptp"}, "veth", None),
    ],
)
def test_a_mac_that_was_ignored(plugin: JsonObject, kind: str, said: str | None) -> None:
    """A plugin that receives the MAC must set it; otherwise Docker sets it, if the link allows that."""
    planned = plan(plugin, requested=RequestedInterface(mac=MAC))
    refuse_ignored(planned, snapshot(mac=MAC, kind=kind))
    if said is None:
        refuse_ignored(planned, snapshot(mac="02:00:00:00:00:01", kind=kind))
        return
    with pytest.raises(Refused, match=said):
        refuse_ignored(planned, snapshot(mac="02:00:00:00:00:01", kind=kind))
