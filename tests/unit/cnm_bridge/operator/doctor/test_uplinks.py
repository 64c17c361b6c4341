# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Missing links of a LAN, and bridges of the host that lost their uplink or change their MAC, are found."""

from dataclasses import replace
from ipaddress import ip_interface

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.doctor.facts import DockerNetwork, Facts, JoinedEndpoint
from cnm_bridge.operator.doctor.finding import Severity
from cnm_bridge.operator.host import HostLink
from tests.unit.cnm_bridge.operator.doctor.host import HEALTHY, codes, configured, only

IPAM: JsonObject = {
    "type": "host-local",
    "ranges": [[{"subnet": "10.22.0.0/28", "gateway": "10.22.0.1"}]],
    "routes": [{"dst": "0.0.0.0/0"}],
}
LAN: JsonObject = {"type": "bridge", "bridge": "br0", "ipam": IPAM}
BR0 = HostLink(mtu=1500, kind="bridge", addresses=(ip_interface("10.22.0.9/28"),), is_stretched=True)


def joined(address: str) -> JoinedEndpoint:
    """Return a running container."""
    return JoinedEndpoint(container="web", configuration="blue", addresses=(ip_interface(address),))


@pytest.mark.parametrize(
    ("plugin", "what"),
    [
        ({"type": "macvlan", "master": "eth1"}, "master of plugin macvlan"),
        ({"type": "host-device", "device": "eth1"}, "device of plugin host-device"),
        ({"type": "tap", "bridge": "eth1"}, "bridge of plugin tap"),
    ],
)
def test_a_link_that_is_gone(plugin: JsonObject, what: str) -> None:
    """It is an error if a Docker network uses the list; an alternative name is a name."""
    facts = replace(HEALTHY, networks=(configured(plugin),), links={"eth10": HostLink(mtu=1500)})
    finding = only(facts)
    assert (finding.code, finding.severity) == ("link-missing", Severity.WARNING)
    assert f"the host has no link eth1, the {what}: " in finding.text
    assert "did you mean eth10?" in finding.text
    docker = replace(facts.engine, networks=(DockerNetwork(name="lan", configuration="blue"),))
    assert only(replace(facts, engine=docker)).severity is Severity.ERROR
    assert codes(replace(facts, links={"enp1s0": HostLink(mtu=1500, altnames=("eth1",))})) == []
    assert codes(replace(facts, links={})) == []  # they could not be read


def test_links_that_the_host_need_not_have() -> None:
    """A container has the device, or the parent is in it."""
    links = {"lo": HostLink(mtu=65536)}
    device = configured({"type": "host-device", "device": "eth1"})
    assert codes(replace(HEALTHY, networks=(device,), links=links, endpoints=(joined("10.22.0.2/28"),))) == []
    inner = configured({"type": "macvlan", "master": "eth0", "linkInContainer": True})
    assert codes(replace(HEALTHY, networks=(inner,), links=links)) == []


def with_bridge(link: HostLink, *addresses: str) -> Facts:
    """Return a host whose own bridge leads to a LAN, and its running containers."""
    endpoints = tuple(map(joined, addresses))
    return replace(HEALTHY, networks=(configured(LAN),), links={"br0": link}, endpoints=endpoints)


def test_a_bridge_that_changes_its_mac() -> None:
    """It matters if the host has an address on it, and others on the LAN reach it there."""
    finding = only(with_bridge(replace(BR0, keeps_mac=False)))
    assert finding.code == "bridge-mac"
    assert finding.fix == "ip link set dev br0 address $(cat /sys/class/net/br0/address)"
    assert codes(with_bridge(BR0)) == []
    assert codes(with_bridge(replace(BR0, keeps_mac=False, addresses=()))) == []
    assert codes(with_bridge(replace(BR0, keeps_mac=False, is_stretched=False))) == []


def test_a_bridge_that_lost_its_uplink() -> None:
    """The router may also be a virtual machine, a container or the host; and an isolated network has none."""
    alone = replace(BR0, is_stretched=False)
    assert only(with_bridge(alone, "10.22.0.2/28")).code == "bridge-without-uplink"
    assert codes(with_bridge(alone)) == codes(with_bridge(BR0, "10.22.0.2/28")) == []
    assert codes(with_bridge(replace(alone, has_machines=True), "10.22.0.2/28")) == []
    assert codes(with_bridge(alone, "10.22.0.2/28", "10.22.0.1/28")) == []
    own = (*alone.addresses, ip_interface("10.22.0.1/28"))
    assert codes(with_bridge(replace(alone, addresses=own), "10.22.0.2/28")) == []
    isolated = configured({**LAN, "ipam": {**IPAM, "routes": []}})
    assert codes(replace(with_bridge(alone, "10.22.0.2/28"), networks=(isolated,))) == []
