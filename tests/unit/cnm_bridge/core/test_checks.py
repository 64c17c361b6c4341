# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What each plugin's CHECK receives after Docker has renamed the link, and which rules are missed."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_interface

import pytest

from cni_bridge_spec import JsonObject, get_objects
from cni_bridge_state import AttachMode, EndpointRecord
from cnm_bridge.core.checks import PluginCheck, find_missing_rules, makes_nothing, plan_checks
from cnm_bridge.core.endpoint import Endpoint
from tests.records import endpoint
from tests.unit.cnm_bridge.core.snapshots import BRIDGE, LINK, snapshot

IPAM: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/16"}]]}
RESULT: JsonObject = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "veth1"}, {"name": "eth0", "mac": LINK.mac, "sandbox": "/staging"}],
    "ips": [{"address": "10.22.0.2/16", "interface": 1}],
    "routes": [{"dst": "0.0.0.0/0"}],
}
FOUND = snapshot(*BRIDGE, link=replace(LINK, name="eth1"))


def joined(*plugins: JsonObject, mode: AttachMode = AttachMode.MOVE) -> EndpointRecord:
    """Return the record of an endpoint whose link had the name eth0, with a requested address."""
    record = endpoint("88" * 32, plugins=plugins, args=(("IP", "10.22.0.2"),))
    attachment = replace(record.attachment, mode=mode, reservation=RESULT if mode.has_reservation else None)
    made = snapshot(*BRIDGE).to_json()
    return replace(record, attachment=attachment, sandbox_key="/run/docker/netns/1", result=RESULT, snapshot=made)


def checks(record: EndpointRecord) -> Sequence[PluginCheck]:
    """Return the executions for a link that is eth1 now."""
    return tuple(plan_checks(Endpoint(record), FOUND))


@pytest.mark.parametrize("mode", [AttachMode.MOVE, AttachMode.HYBRID])
def test_a_plugin_that_delegates_ipam(mode: AttachMode) -> None:
    """IPAM finds the reservation by the name that ADD received; the others find the link by its present name."""
    ipam, bridge, firewall = checks(joined({"type": "bridge", "ipam": IPAM}, {"type": "firewall"}, mode=mode))
    assert [one.type for one in (ipam, bridge, firewall)] == ["host-local", "bridge", "firewall"]
    assert [one.attachment.ifname for one in (ipam, bridge, firewall)] == ["eth0", "eth1", "eth1"]
    assert ipam.attachment.args == (("IP", "10.22.0.2"),)
    assert bridge.attachment.args == ()  # `static` would refuse it
    assert bridge.network.plugins[0].ipam_type == "static"
    assert bridge.result is not None
    assert bridge.result.ips == ()
    assert firewall.result is not None
    assert [str(one.address) for one in firewall.result.ips] == ["10.22.0.2/16"]
    (of_link,) = (one for one in get_objects(firewall.result.document, "interfaces") if "sandbox" in one)
    assert (of_link["name"], of_link["sandbox"]) == ("eth1", firewall.attachment.netns)


def test_a_bridge_without_addresses() -> None:
    """The CHECK of `bridge` executes an IPAM plugin, even if the list has none."""
    (bridge,) = checks(joined({"type": "bridge"}))
    assert (bridge.type, bridge.network.plugins[0].ipam_type) == ("bridge", "static")


def test_a_plugin_that_is_not_known() -> None:
    """It receives its own configuration, and the whole result."""
    (own,) = checks(joined({"type": "own", "ipam": IPAM}))
    assert own.network.plugins[0].ipam_type == "host-local"
    assert own.result is not None
    assert len(own.result.ips) == 1


def test_what_is_not_asked() -> None:
    """Plugins that made nothing, that report what is there, or whose result was lost."""
    portmap: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}
    record = joined({"type": "bridge", "ipam": IPAM}, {"type": "bandwidth"}, portmap, {"type": "firewall"})
    assert [one.type for one in checks(record)] == ["host-local", "bridge", "firewall"]
    assert [one.type for one in checks(replace(record, snapshot=None))] == ["firewall"]


ADDRESSES = [ip_interface("10.1.2.3/24"), ip_interface("fd00::3/64")]
MASQUERADING_BRIDGE: JsonObject = {"type": "bridge", "ipMasq": True, "ipam": {"type": "host-local"}}
PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}
PORTS: JsonObject = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
MASQUERADING = [
    'iptables -t nat -A POSTROUTING -s 10.1.2.3/32 -m comment --comment "x" -j CNI-0123456789abcdef01234567',
    'ip6tables -t nat -A POSTROUTING -s fd00::3/128 -m comment --comment "x" -j CNI-0123456789abcdef01234567',
]
PUBLISHING = [
    f"{command} -t nat -A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8080 -j CNI-DN-0123456789abcdef01234"
    for command in ("iptables", "ip6tables")
]


@pytest.mark.parametrize(
    ("plugin", "given", "nothing"),
    [
        ({}, {}, True),
        ({"ingressRate": 0}, {}, True),
        ({"egressRate": 1000, "egressBurst": 1000}, {}, False),
        ({"capabilities": {"bandwidth": True}}, {}, True),
        ({"capabilities": {"bandwidth": True}}, {"bandwidth": {"ingressRate": 1000, "ingressBurst": 1000}}, False),
        ({"capabilities": {"bandwidth": False}}, {"bandwidth": {"ingressRate": 1000}}, True),
        ({"type": "tuning"}, {}, False),
    ],
)
def test_bandwidth_without_a_rate_makes_nothing(plugin: JsonObject, given: JsonObject, *, nothing: bool) -> None:
    """It has a rate in the list, or by its capability; other plugins always make something."""
    assert makes_nothing({"type": "bandwidth", **plugin}, given) is nothing


def test_nothing_is_missing() -> None:
    """Of an untouched container."""
    plugins = [MASQUERADING_BRIDGE, PORTMAP]
    assert list(find_missing_rules(plugins, ADDRESSES, PORTS, MASQUERADING + PUBLISHING)) == []


@pytest.mark.parametrize(("plugin", "rules"), [(MASQUERADING_BRIDGE, MASQUERADING), (PORTMAP, PUBLISHING)])
@pytest.mark.parametrize("index", range(2))
def test_a_missing_rule(plugin: JsonObject, rules: list[str], index: int) -> None:
    """Each family needs its own."""
    others = [rule for number, rule in enumerate(rules) if number != index]
    (found,) = find_missing_rules([plugin], ADDRESSES, PORTS, others)
    assert (str(ADDRESSES[index].ip) in found, str(plugin["type"]) in found) == (True, True)


@pytest.mark.parametrize(("host", "needed"), [("127.0.0.1", PUBLISHING[:1]), ("::1", PUBLISHING[1:])])
def test_a_port_of_one_family(host: str, needed: list[str]) -> None:
    """An address of the host has one."""
    (plain,) = get_objects(PORTS, "portMappings")
    ports: JsonObject = {"portMappings": [{**plain, "hostIP": host}]}
    assert list(find_missing_rules([PORTMAP], ADDRESSES, ports, needed)) == []


@pytest.mark.parametrize(
    "plugin",
    [
        {"type": "bridge"},
        {"type": "macvlan", "ipMasq": True},
        {"type": "bridge", "ipMasq": True, "ipMasqBackend": "nftables"},
        {"type": "portmap", "backend": "nftables"},
    ],
)
def test_what_a_list_does_not_promise_is_not_missed(plugin: JsonObject) -> None:
    """Other plugins make other rules, or none."""
    assert list(find_missing_rules([plugin], ADDRESSES, PORTS, [])) == []
