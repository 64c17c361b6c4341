# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requested values reach the plugins in a way that they read, and plugins that ignored them are detected."""

import re
from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface, ip_network

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import PoolRecord, RequestedInterface
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import LinkState, Snapshot
from cnm_bridge.core.options.cni_options import Options, parse_options
from cnm_bridge.core.planning.addressing import plan_addresses, requested_addresses
from cnm_bridge.core.planning.plan import Plan, PlanRequest, plan_attachment, with_endpoint_mac
from cnm_bridge.core.planning.records import refuse_ignored
from tests.records import list_of
from tests.unit.cnm_bridge.core.snapshots import address, route

MAC = "02:11:22:33:44:55"
IN_ARGS = (("IgnoreUnknown", "1"), ("MAC", MAC))
LISTED = "02:AA:BB:CC:DD:EE"
HOST_LOCAL: JsonObject = {"type": "host-local", "subnet": "10.1.0.0/24"}


def plan(
    *plugins: JsonObject,
    requested: RequestedInterface | None = None,
    pools: tuple[PoolRecord, ...] = (),
    internal: bool = False,
    **options: str,
) -> Plan:
    """Return the plan for options; '_' in their names stands for '.'."""
    parsed = parse_options({f"cni.{key}".replace("_", "."): value for key, value in options.items()})
    return plan_options(list_of(*plugins), parsed, requested, pools, internal=internal)


def plan_options(
    listed: NetworkConfigurationList,
    options: Options,
    requested: RequestedInterface | None = None,
    pools: tuple[PoolRecord, ...] = (),
    *,
    internal: bool = False,
) -> Plan:
    """Return the plan for parsed options."""
    chosen = requested or RequestedInterface()
    return plan_attachment(
        PlanRequest(network=listed, options=options, requested=chosen, pools=pools, internal=internal)
    )


def documents(planned: Plan) -> list[JsonObject]:
    """Return the configurations of the plugins."""
    return [plugin.document for plugin in planned.configuration.plugins]


def pool(subnet: str, gateway: str | None = None) -> PoolRecord:
    """Return a pool of Docker's IPAM."""
    return PoolRecord(subnet=ip_network(subnet), gateway=ip_address(gateway) if gateway else None)


def test_fixed_addresses_are_known() -> None:
    """They are the requested ones and those of `static`: no IPAM plugin reserves them, so they may be in use."""
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


def test_arguments_that_no_process_can_receive() -> None:
    """They are refused before anything is stored: DEL could not run either."""
    with pytest.raises(Refused, match=r"cni\.args: .* 'IgnoreUnknown, LONG': together they have 200021 bytes"):
        plan({"type": "bridge", "ipam": HOST_LOCAL}, args_LONG="x" * 200_000)


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ({"type": "bridge", "ipam": {"type": "host-local", "ranges": "all"}}, "ranges must be an array"),
        ({"type": "bridge", "ipam": {"type": "host-local", "subnet": 5}}, "subnet must be a string"),
        ({"type": "bridge", "args": {"cni": 5}}, "cni must be an object"),
    ],
)
def test_a_list_that_plugins_cannot_parse_is_rejected(plugin: JsonObject, message: str) -> None:
    """The error names the list and the fault."""
    with pytest.raises(Refused, match=f"CNI configuration blue .* cannot be used: {message}"):
        plan(plugin, pools=(pool("10.1.0.0/24"),), labels_a="b")


def test_other_ipam_plugins_receive_addresses_in_two_ways() -> None:
    """They are in `args.cni.ips` and in CNI_ARGS."""
    planned = plan({"type": "calico", "ipam": {"type": "calico-ipam"}}, ips="10.1.0.9/24")
    assert documents(planned)[0]["args"] == {"cni": {"ips": ["10.1.0.9/24"]}}
    assert planned.args == (("IgnoreUnknown", "1"), ("IP", "10.1.0.9"))


@pytest.mark.parametrize("ipam", [None, {}, {"type": "dhcp", "daemonSocketPath": "/x"}])
def test_static_is_the_ipam_plugin_of_requested_addresses(ipam: JsonObject | None) -> None:
    """It replaces a missing IPAM plugin, and one that cannot work here; the address needs a prefix length."""
    plugins: JsonObject = {"type": "bridge"} if ipam is None else {"type": "bridge", "ipam": ipam}
    found = documents(plan(plugins, ips="10.1.0.9/24"))[0]["ipam"]
    assert isinstance(found, dict)
    assert (found["type"], found["addresses"]) == ("static", [{"address": "10.1.0.9/24"}])
    with pytest.raises(Refused, match=r"cni\.ips=10\.1\.0\.9/24"):
        plan(plugins, ips="10.1.0.9")


@pytest.mark.parametrize("internal", [False, True])
def test_static_receives_the_gateway_of_dockers_pool(*, internal: bool) -> None:
    """It also receives the default route, unless the network is internal."""
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


def test_dockers_pool_must_equal_a_range_of_host_local() -> None:
    """Both notations of host-local are known; its default gateway is the first address of the range."""
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


def test_an_address_that_this_driver_has_reserved_is_given_by_static() -> None:
    """As Docker's IPAM driver: the list's own IPAM plugin would reserve it a second time, from its own ranges."""
    ipam: JsonObject = {"type": "host-local", "subnet": "10.9.0.0/16", "routes": [{"dst": "10.0.0.0/8"}]}
    own = replace(pool("10.1.2.0/24", "10.1.2.1"), is_own=True)
    planned = plan(
        {"type": "bridge", "capabilities": {"ips": True}, "ipam": ipam},
        requested=RequestedInterface(address=IPv4Interface("10.1.2.3/24")),
        pools=(own,),
    )
    assert documents(planned)[0]["ipam"] == {
        "type": "static",
        "subnet": "10.9.0.0/16",
        "addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}],
        "routes": [{"dst": "10.0.0.0/8"}, {"dst": "0.0.0.0/0", "gw": "10.1.2.1"}],
    }
    assert planned.capability_args == {}
    with pytest.raises(Refused, match=r"fd00::9 is not an address of Docker's IPAM driver cni-bridge"):
        plan(
            {"type": "bridge", "ipam": ipam},
            requested=RequestedInterface(address=IPv4Interface("10.1.2.3/24")),
            pools=(own,),
            ips="fd00::9",
        )


def test_docker_and_options_may_request_the_same_address() -> None:
    """Different addresses of one family are rejected; addresses of different families are accepted."""
    requested = RequestedInterface(address=IPv4Interface("10.1.0.9/24"))
    assert plan({"type": "bridge", "ipam": HOST_LOCAL}, requested=requested, ips="10.1.0.9,fd00::9").addresses == (
        IPv4Interface("10.1.0.9/24"),
        ip_address("fd00::9"),
    )
    with pytest.raises(Refused, match=r"10\.1\.0\.8"):
        plan({"type": "bridge", "ipam": HOST_LOCAL}, requested=requested, ips="10.1.0.8")


def test_an_address_that_no_range_has() -> None:
    """The refusal shows the ranges of the list; those of other IPAM plugins are not known."""
    part: JsonObject = {**HOST_LOCAL, "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.20"}
    for ipam, has in ((HOST_LOCAL, "10.1.0.0/24"), (part, "10.1.0.9 to 10.1.0.20")):
        with pytest.raises(
            Refused, match=rf"10\.9\.0\.9 is not an address of .* blue \(.*\), which has {re.escape(has)}$"
        ):
            plan({"type": "bridge", "ipam": ipam}, ips="10.9.0.9")
    assert plan({"type": "bridge", "ipam": {"type": "static"}}, ips="10.9.0.9/24").addresses


@pytest.mark.parametrize(
    ("plugin", "args", "capability_args"),
    [
        ({"type": "x", "capabilities": {"mac": True}}, (), {"mac": MAC}),
        ({"type": "bridge", "capabilities": {"mac": True}}, (), {"mac": MAC}),
        ({"type": "macvlan"}, IN_ARGS, {}),
        ({"type": "ptp"}, (), {}),
        ([{"type": "bridge"}, {"type": "tuning", "capabilities": {"mac": True}}], IN_ARGS, {"mac": MAC}),
        ([{"type": "ptp"}, {"type": "tuning", "capabilities": {"mac": True}}], (), {"mac": MAC}),
    ],
)
def test_a_mac_is_passed_to_plugins_that_read_it(
    plugin: JsonObject | list[JsonObject], args: tuple[tuple[str, str], ...], capability_args: JsonObject
) -> None:
    """It is a capability arg or an argument, for each plugin what it reads; if none does, Docker sets it."""
    plugins = plugin if isinstance(plugin, list) else [plugin]
    planned = plan(*plugins, requested=RequestedInterface(mac=MAC))
    assert (planned.args, planned.capability_args) == (args, capability_args)
    assert planned.passes_mac is bool(args or capability_args)
    with pytest.raises(Refused, match="MAC 03:11:22:33:44:55 is a multicast address"):
        plan(*plugins, requested=RequestedInterface(mac="03:11:22:33:44:55"))


def test_labels_are_merged_with_those_of_the_list() -> None:
    """A label with the same key is replaced; other labels and args are kept."""
    own: JsonObject = {"cni": {"labels": [{"key": "app", "value": "old"}, {"key": "zone", "value": "a"}], "x": 1}}
    (document,) = documents(plan({"type": "a", "args": own}, labels_app="web"))
    labels = [{"key": "zone", "value": "a"}, {"key": "app", "value": "web"}]
    assert document["args"] == {"cni": {"labels": labels, "x": 1}}


def test_capability_args_need_a_plugin_that_declares_them() -> None:
    """They are passed on in any case of the option's name; otherwise the error says what to add to the list."""
    assert plan({"type": "a", "capabilities": {"x": True}}, capability_x="[1]").capability_args == {"x": [1]}
    # As the command line of Docker makes it.
    declared: JsonObject = {"type": "a", "capabilities": {"deviceID": True}}
    assert plan(declared, capability_deviceid="1").capability_args == {"deviceID": 1}
    with pytest.raises(Refused, match=re.escape('"capabilities": { "x": true }')):
        plan({"type": "a"}, capability_x="[1]")
    with pytest.raises(Refused, match=re.escape('"type": "bandwidth"')):
        plan_options(list_of({"type": "a"}), parse_options({"cni.bandwidth.egress-rate": "1M"}))


def snapshot(*addresses: str, mac: str = MAC, kind: str | None = "veth", prefix_route: bool = True) -> Snapshot:
    """Return what plugins left: a link with these addresses."""
    return Snapshot(
        link=LinkState(name="eth0", kind=kind, mac=mac, mtu=1500, noarp=False),
        addresses=tuple(map(address, addresses)),
        routes=tuple(route(str(ip_interface(text).network), protocol=2) for text in addresses) if prefix_route else (),
    )


def test_requested_addresses_must_exist() -> None:
    """The prefix length matters if it was requested."""
    both: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}
    planned = plan({"type": "bridge", "ipam": both}, ips="10.1.0.9,fd00::9/64")
    refuse_ignored(planned, snapshot("10.1.0.9/24", "fd00::9/64", "10.1.0.10/24"))
    with pytest.raises(Refused, match=re.escape("did not assign fd00::9/64 but 10.1.0.9/24, fd00::9/80")):
        refuse_ignored(planned, snapshot("10.1.0.9/24", "fd00::9/80"))
    with pytest.raises(Refused, match=r"did not assign 10\.1\.0\.9, fd00::9/64 but none"):
        refuse_ignored(planned, snapshot())


def test_the_address_requested_by_docker_must_be_the_first() -> None:
    """It must also have the prefix length that Docker will use."""
    requested = RequestedInterface(address=IPv4Interface("10.1.0.9/24"))
    planned = plan({"type": "ptp", "ipam": HOST_LOCAL}, requested=requested)
    refuse_ignored(planned, snapshot("10.1.0.9/24"))
    with pytest.raises(Refused, match=re.escape("10.1.0.9/32")):
        refuse_ignored(planned, snapshot("10.1.0.9/24", prefix_route=False))
    with pytest.raises(Refused, match=re.escape("10.1.0.8/24")):
        refuse_ignored(planned, snapshot("10.1.0.8/24", "10.1.0.9/24"))


@pytest.mark.parametrize(
    ("plugin", "kind", "message"),
    [
        ({"type": "bridge"}, "veth", "ignored the requested MAC"),
        ({"type": "x", "capabilities": {"mac": True}}, "veth", "ignored the requested MAC"),
        ({"type": "ipvlan"}, "ipvlan", "cannot be set"),
        ({"type": "ptp"}, "veth", None),
    ],
)
def test_an_ignored_mac_is_detected(plugin: JsonObject, kind: str, message: str | None) -> None:
    """A plugin that receives the MAC must set it; otherwise Docker sets it, if the link allows that."""
    planned = plan(plugin, requested=RequestedInterface(mac=MAC))
    refuse_ignored(planned, snapshot(mac=MAC, kind=kind))
    if message is None:
        refuse_ignored(planned, snapshot(mac="02:00:00:00:00:01", kind=kind))
        return
    with pytest.raises(Refused, match=message):
        refuse_ignored(planned, snapshot(mac="02:00:00:00:00:01", kind=kind))


def plan_lease(ipam: str, client_id: str, *, mac: str | None = None, ips: str | None = None) -> Plan:
    """Return the plan for a client identifier."""
    options = parse_options({"cni.dhcp.client-id": client_id, **({"cni.ips": ips} if ips else {})})
    main: JsonObject = {"type": "macvlan", "ipam": {"type": ipam}}
    return plan_options(list_of(main), options, RequestedInterface(mac=mac))


def test_a_client_identifier_that_would_not_be_used() -> None:
    """It is refused, because the container would not be what it asks for."""
    with pytest.raises(Refused, match="its IPAM plugin is not dhcp"):
        plan_lease("host-local", "web")
    with pytest.raises(Refused, match="the address is given"):
        plan_lease("dhcp", "web", ips="10.1.0.9/24")


def test_a_client_identifier_determines_the_mac() -> None:
    """It is the same each time, another one for another identifier; one that Docker chose goes before it."""
    web, again, db = (plan_lease("dhcp", name) for name in ("web", "web", "db"))
    assert web.own_mac == again.own_mac != db.own_mac
    assert dict(web.args)["MAC"] == web.own_mac
    assert int((web.own_mac or "")[:2], 16) & 3 == 2
    chosen = plan_lease("dhcp", "web", mac=MAC)
    assert (chosen.own_mac, dict(chosen.args)["MAC"]) == (None, MAC)


def test_a_plugin_whose_mac_is_fixed() -> None:
    """Calico's agent knows only the MAC that its plugin gave: another one is refused, before the plugin runs."""
    with pytest.raises(Refused, match="plugin calico of CNI configuration blue does not allow to choose a MAC"):
        plan({"type": "calico"}, requested=RequestedInterface(mac=MAC))
    assert plan({"type": "calico"}).own_mac is None


def with_cni_mac(plugin: str) -> JsonObject:
    """Return a plugin with a MAC in `args.cni`."""
    return {"type": plugin, "ipam": HOST_LOCAL, "args": {"cni": {"mac": LISTED}}}


@pytest.mark.parametrize(
    "plugins",
    [
        [{"type": "macvlan", "ipam": HOST_LOCAL, "mac": LISTED}],
        [{"type": "tap", "ipam": HOST_LOCAL, "mac": LISTED.replace(":", "-")}],
        [with_cni_mac("bridge")],
        [{"type": "ptp", "ipam": HOST_LOCAL}, {"type": "tuning", "mac": LISTED}],
        [{"type": "bridge", "ipam": HOST_LOCAL}, with_cni_mac("tuning"), {"type": "firewall"}],
        [with_cni_mac("bridge"), {"type": "tuning", "mac": LISTED}],
    ],
)
def test_the_mac_of_the_list_goes_before_ours(plugins: list[JsonObject]) -> None:
    """Docker learns it before the link exists, and no plugin receives another one."""
    planned = with_endpoint_mac(plan(*plugins), "one")
    assert planned.own_mac == LISTED.lower()
    assert (planned.args, planned.capability_args) == ((), {})


def test_a_mac_that_no_plugin_reads() -> None:
    """`macvlan` reads `mac` and not `args.cni.mac`, `bridge` the latter only, `ptp` none."""
    ignored: JsonObject = {"type": "bridge", "ipam": HOST_LOCAL, "mac": LISTED}
    for plugin in (with_cni_mac("macvlan"), with_cni_mac("ptp"), ignored):
        assert plan(plugin).own_mac is None


def test_the_mac_of_an_option_goes_before_ours() -> None:
    """An argument or a capability of the user's is what plugins receive."""
    argument = plan({"type": "bridge", "ipam": HOST_LOCAL}, args_MAC=MAC)
    assert with_endpoint_mac(argument, "one").own_mac == MAC


def test_a_users_mac_goes_before_that_of_the_list() -> None:
    """The plugin receives it."""
    planned = plan({"type": "macvlan", "mac": LISTED}, requested=RequestedInterface(mac=MAC))
    assert (planned.own_mac, planned.args) == (None, IN_ARGS)


SPOOFING: JsonObject = {"type": "bridge", "ipam": HOST_LOCAL, "macspoofchk": True}


@pytest.mark.parametrize(
    ("plugins", "mac"),
    [
        ([SPOOFING, {"type": "tuning", "mac": LISTED}], None),
        ([{**SPOOFING, **with_cni_mac("bridge"), "macspoofchk": True}, {"type": "tuning", "mac": MAC}], None),
        ([{**with_cni_mac("bridge"), "macspoofchk": True}, {"type": "tuning", "capabilities": {"mac": True}}], MAC),
    ],
)
def test_a_mac_that_spoofing_rules_would_drop(plugins: list[JsonObject], mac: str | None) -> None:
    """The container would start and reach nothing: the error names both plugins and what to change."""
    with pytest.raises(Refused, match=r"plugin tuning .* plugin bridge has macspoofchk.*leave out macspoofchk"):
        plan(*plugins, requested=RequestedInterface(mac=mac))


def test_a_mac_that_spoofing_rules_are_made_for() -> None:
    """All plugins set the same one."""
    tuning: JsonObject = {"type": "tuning", "capabilities": {"mac": True}}
    assert plan(SPOOFING, tuning, requested=RequestedInterface(mac=MAC)).passes_mac
    assert plan({**with_cni_mac("bridge"), "macspoofchk": True}, {"type": "tuning", "mac": LISTED}).own_mac


def test_docker_learns_a_mac_before_the_link_exists() -> None:
    """If none was chosen and the plugin makes a link that may have any; it is another one for each endpoint."""
    bridge = plan({"type": "bridge", "ipam": HOST_LOCAL})
    first, again, second = (with_endpoint_mac(bridge, endpoint_id) for endpoint_id in ("one", "one", "two"))
    assert first.own_mac is not None
    assert int(first.own_mac[:2], 16) & 3 == 2
    assert first.capability_args == {"mac": first.own_mac}
    assert first.own_mac == again.own_mac != second.own_mac
    assert with_endpoint_mac(plan({"type": "ipvlan", "ipam": HOST_LOCAL}), "one").own_mac is None
    given = plan({"type": "bridge", "ipam": HOST_LOCAL}, requested=RequestedInterface(mac="02:00:00:00:00:09"))
    assert with_endpoint_mac(given, "one").own_mac is None


@pytest.mark.parametrize(
    ("sysctls", "without_ipv6"),
    [
        ("net.ipv6.conf.IFNAME.disable_ipv6=1", True),
        ("net.ipv6.conf.IFNAME.disable_ipv6=1,net.ipv6.conf.IFNAME.disable_ipv6=0", False),
        ("net.ipv6.neigh.IFNAME.disable_ipv6=1", False),
    ],
)
def test_a_link_on_which_an_option_disables_ipv6(sysctls: str, *, without_ipv6: bool) -> None:
    """Docker learns no IPv6 address: an engine does not start a container that has one in spite of the option."""
    options = parse_options({"com.docker.network.endpoint.sysctls": sysctls})
    assert plan_options(list_of({"type": "bridge", "ipam": HOST_LOCAL}), options).without_ipv6 is without_ipv6


EGRESS: JsonObject = {"type": "egress", "allow": [], "capabilities": {"egress": True}}


def test_a_guarded_network_keeps_its_default_route() -> None:
    """Also if it is internal for Docker; other internal networks have none."""
    bridge: JsonObject = {"type": "bridge", "ipam": HOST_LOCAL}
    assert plan(bridge, internal=True).internal
    assert not plan(bridge, EGRESS, internal=True).internal
    options = parse_options({"cni.egress.allow": "a.example"})
    guarded = plan_options(list_of(bridge), options, internal=True)
    assert not guarded.internal
    assert [plugin.type for plugin in guarded.configuration.plugins] == ["bridge", "egress"]
    assert guarded.source_digest == plan(bridge).source_digest


def test_entries_of_a_container_on_another_network() -> None:
    """They would have no effect, so they are refused."""
    bridge: JsonObject = {"type": "bridge", "ipam": HOST_LOCAL}
    options = parse_options({}, {"cni.egress.allow": "b.example"})
    assert plan_options(list_of(bridge, EGRESS), options).capability_args == {"egress": {"allow": ["b.example"]}}
    with pytest.raises(Refused, match=r"no plugin with the capability egress; cni.egress.allow of a container needs"):
        plan_options(list_of(bridge), options)


WANTED = (ip_address("10.1.0.9"), ip_address("fd00::9"))


@pytest.mark.parametrize(
    "plugin",
    [
        {"type": "bridge", "ipam": {"type": "host-local"}},
        {"type": "bridge", "ipam": {"type": "another"}},
        {"type": "bridge", "capabilities": {"ips": True}, "ipam": {"type": "another"}},
    ],
)
def test_requested_addresses(plugin: JsonObject) -> None:
    """They are found again in what the plugins receive, whichever way passes them; without a request there are none."""
    network = list_of(plugin)
    passed = plan_addresses(network, WANTED, (), internal=False)
    assert requested_addresses(passed.configuration, (), passed.capability_args) == set(WANTED)
    assert requested_addresses(network, (), {}) == set()


@pytest.mark.parametrize(
    ("main", "name"),
    [
        ({"type": "bridge", "ipam": {"type": "whereabouts", "range": "10.1.0.0/24"}}, "whereabouts"),
        ({"type": "weave-net", "ipam": {"type": "weave-ipam"}}, "weave-ipam"),
        ({"type": "weave-net"}, "weave-net"),
    ],
)
def test_a_plugin_that_reserves_no_requested_address(main: JsonObject, name: str) -> None:
    """A request is refused before the plugin runs: it would fail at ADD and at DEL, or give the address away again."""
    network = list_of(main, version="0.4.0")
    with pytest.raises(Refused, match=rf"its plugin {name} would not reserve it.* leave out cni[.]ips"):
        plan_addresses(network, WANTED, (), internal=False)
    assert plan_addresses(network, (), (), internal=False).configuration == network
