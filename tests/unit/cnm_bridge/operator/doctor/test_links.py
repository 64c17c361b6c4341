# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Bridges, MTUs and rules that do not fit the lists are found, with commands for a shell."""

import subprocess
from dataclasses import replace
from ipaddress import ip_interface, ip_network

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.doctor.facts import DockerNetwork, Facts, JoinedEndpoint, Severity
from cnm_bridge.operator.doctor.report import Report
from cnm_bridge.operator.host import HostLink, HostRoute
from tests.unit.cnm_bridge.operator.doctor.host import BRIDGE, FIREWALL, HEALTHY, codes, configured, only

UPLINK = (HostRoute(destination=ip_network("0.0.0.0/0"), link="eth0"),)


def with_addresses(*addresses: str) -> Facts:
    """Return the host with a bridge that has these addresses."""
    return replace(HEALTHY, links={"cni-blue": HostLink(mtu=1500, addresses=tuple(map(ip_interface, addresses)))})


@pytest.mark.parametrize(
    ("addresses", "refused"),
    [
        (("10.22.0.1/28", "fd22::1/64", "fe80::1/64"), None),
        (("10.99.0.1/16",), "10.99.0.1/16"),
        (("10.22.0.1/24",), "10.22.0.1/24"),
        (("fd22::9/64",), "fd22::9/64"),
        (("fd99::1/64",), None),
    ],
)
def test_a_bridge_with_another_address(addresses: tuple[str, ...], refused: str | None) -> None:
    """The plugin accepts further addresses of IPv6 in other subnets, and none of IPv4."""
    if refused is None:
        assert codes(with_addresses(*addresses)) == []
    else:
        assert only(with_addresses(*addresses)).fix == f"ip address del {refused} dev cni-blue"


def with_mtu(plugin: JsonObject, mtu: int) -> Facts:
    """Return a host whose uplink has an MTU, with one network."""
    network = configured(plugin, FIREWALL)
    docker = DockerNetwork(name="blue", configuration="blue", containers=("db", "web"))
    engine = replace(HEALTHY.engine, networks=(docker,))
    links = {"eth0": HostLink(mtu=mtu)}
    return replace(HEALTHY, networks=(network,), engine=engine, links=links, routes=UPLINK)


def test_an_mtu_above_the_uplinks() -> None:
    """The advice has the number, the file, and the containers that keep the old one."""
    assert codes(with_mtu(BRIDGE, 1500)) == []
    assert codes(with_mtu({**BRIDGE, "mtu": 1400}, 1400)) == []
    for plugin in (BRIDGE, {**BRIDGE, "mtu": 9000}):
        finding = only(with_mtu(plugin, 1400))
        assert (finding.code, finding.severity) == ("mtu-above-uplink", Severity.WARNING)
        assert finding.advice == (
            'set "mtu": 1400 for the plugin bridge in /etc/cni/net.d/blue.conflist, then: docker restart db web'
        )


def test_an_mtu_above_the_parents() -> None:
    """The plugin macvlan refuses it."""
    macvlan: JsonObject = {"type": "macvlan", "master": "eth0", "mtu": 9000}
    finding = only(replace(with_mtu(macvlan, 1500), firewall=replace(HEALTHY.firewall, rules=())))
    assert (finding.severity, finding.code) == (Severity.ERROR, "mtu-above-uplink")
    assert codes(replace(with_mtu({"type": "macvlan", "master": "eth0"}, 1400), routes=())) == []


def test_dead_reservations() -> None:
    """One command removes all of them."""
    networks = tuple(replace(one, dead=("/x/10.22.0.2", "/x/10.22.0.3")) for one in HEALTHY.networks)
    finding = only(replace(HEALTHY, networks=networks))
    assert finding.fix == "rm /x/10.22.0.2 /x/10.22.0.3"


def test_a_rule_goes_where_forward_leads() -> None:
    """A chain DOCKER-USER that is left from another backend has no effect."""
    left = (":FORWARD DROP [0:0]", ":DOCKER-USER - [0:0]")
    facts = replace(HEALTHY, networks=(configured(BRIDGE),))
    assert "-I FORWARD -i" in only(replace(facts, firewall=replace(HEALTHY.firewall, rules=left))).fix
    used = (*left, "-A FORWARD -j DOCKER-USER")
    assert "-I DOCKER-USER -i" in only(replace(facts, firewall=replace(HEALTHY.firewall, rules=used))).fix


def test_each_fix_is_a_command() -> None:
    """Words are advice."""
    networks = (configured(BRIDGE, {"type": "vrf"}, problems=("x",), warnings=("y",)),)
    installation = replace(HEALTHY.installation, daemon_pid=None, is_root=False, units=None)
    for finding in Report.of(replace(HEALTHY, networks=networks, installation=installation)).findings:
        assert finding.fix or finding.advice
        assert "; or " not in finding.fix
        subprocess.run(("sh", "-n", "-c", finding.fix), check=True)


@pytest.mark.parametrize(
    ("plugin", "what"),
    [
        ({"type": "macvlan", "master": "eth1"}, "master of plugin macvlan"),
        ({"type": "host-device", "device": "eth1"}, "device of plugin host-device"),
        ({"type": "tap", "bridge": "eth1"}, "bridge of plugin tap"),
    ],
)
def test_a_link_that_is_gone(plugin: JsonObject, what: str) -> None:
    """It is an error if a Docker network uses the list; an alternative name is a name, a container's link is not."""
    used = replace(HEALTHY, networks=(configured(plugin),), links={"eth10": HostLink(mtu=1500)})
    facts = replace(used, engine=replace(HEALTHY.engine, networks=()))
    finding = only(facts)
    assert (finding.code, finding.severity) == ("link-missing", Severity.WARNING)
    assert f"the host has no link eth1, the {what}: " in finding.text
    assert "did you mean eth10?" in finding.text
    assert only(used).severity is Severity.ERROR
    assert codes(replace(facts, links={"enp1s0": HostLink(mtu=1500, altnames=("eth1",))})) == []
    of_container = {"veth1": HostLink(mtu=1500, kind="veth")}
    assert "did you mean" not in only(replace(facts, links=of_container)).text
    assert codes(replace(facts, links={})) == []  # they could not be read


def test_links_that_the_host_need_not_have() -> None:
    """A container has the device, or the parent is in it."""
    links = {"lo": HostLink(mtu=65536)}
    device = configured({"type": "host-device", "device": "eth1"})
    endpoint = JoinedEndpoint(container="web", configuration="blue")
    assert codes(replace(HEALTHY, networks=(device,), links=links, endpoints=(endpoint,))) == []
    inner = configured({"type": "macvlan", "master": "eth0", "linkInContainer": True})
    assert codes(replace(HEALTHY, networks=(inner,), links=links)) == []
