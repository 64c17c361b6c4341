# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each fault of a host is found, with the command that fixes it, and nothing else is."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.doctor.facts import (
    EngineFacts,
    Facts,
    Finding,
    FirewallFacts,
    InstallationFacts,
    PathFacts,
    Severity,
)
from cnm_bridge.operator.doctor.report import Report
from cnm_bridge.operator.host import HostLink
from tests.unit.cnm_bridge.operator.doctor.host import BRIDGE, FIREWALL, HEALTHY, codes, only, with_network


def test_a_healthy_host_has_no_findings() -> None:
    """Everything else is a single change of this host."""
    report = Report.of(HEALTHY)
    assert report.findings == ()
    assert report.is_good
    assert report.summary == (
        "nothing found; examined: kernel, engine, firewall, daemon, configurations, plugins, network blue"
    )


def test_a_wrong_policy_of_forward() -> None:
    """Without the plugin `firewall`, Docker's policy drops the packets of a bridge; the rules that accept them help."""
    finding = only(with_network(BRIDGE))
    assert (finding.severity, finding.code) == (Severity.ERROR, "forward-dropped")
    assert "the policy DROP of chain FORWARD" in finding.text
    assert "iptables -I FORWARD -i cni-blue -j ACCEPT && iptables -I FORWARD -o cni-blue -j ACCEPT" in finding.fix
    firewall = replace(HEALTHY.firewall, rules=(), rules_ipv6=(":FORWARD DROP [0:0]",))
    finding = only(replace(with_network(BRIDGE), firewall=firewall))
    assert "(ip6tables)" in finding.text
    assert "ip6tables -I FORWARD" in finding.fix


def test_the_firewall_of_ufw_is_changed_by_ufw() -> None:
    """Its own rules would replace others at its next start."""
    firewall = replace(HEALTHY.firewall, rules=(":FORWARD DROP [0:0]", ":ufw-before-forward - [0:0]"))
    assert only(replace(with_network(BRIDGE), firewall=firewall)).fix.startswith("ufw route allow from 10.22.0.0/28")


def test_a_native_chain_drops_whatever_iptables_accepts() -> None:
    """Each base chain has its own verdict."""
    firewall = replace(HEALTHY.firewall, dropping_chains=("inet filter forward",))
    finding = only(replace(HEALTHY, firewall=firewall))
    assert finding.code == "forward-dropped-by-nftables"
    assert "nft insert rule inet filter forward ip saddr 10.22.0.0/28 accept" in finding.fix
    assert "nft insert rule inet filter forward ip6 daddr fd22::/64 accept" in finding.fix


@pytest.mark.parametrize("command", ["iptables", "nft"])
def test_a_missing_command(command: str) -> None:
    """Plugins run it."""
    plugin: JsonObject = {"type": "portmap", "backend": "nftables"} if command == "nft" else {"type": "portmap"}
    macvlan: JsonObject = {"type": "macvlan", "ipam": {"type": "static"}}
    firewall = FirewallFacts(iptables=None if command == "iptables" else "iptables v1.8.9 (nf_tables)", has_nft=False)
    finding = only(replace(with_network(macvlan, plugin), firewall=firewall))
    assert (finding.code, finding.subject) == ("command-missing", f"command {command}")


DOCKER = (":FORWARD DROP [0:0]", ":DOCKER-USER - [0:0]", "-A FORWARD -j DOCKER-USER")
ACCEPTED = "-A DOCKER-USER -s 10.22.0.0/28 -d 10.22.0.0/28 -j ACCEPT"
L2: JsonObject = {**BRIDGE, "isGateway": False, "ipam": {"type": "host-local", "subnet": "10.22.0.0/28"}}


def stretched(*rules: str, filtered: str = "1") -> Facts:
    """Return a host whose bridge has a port to other hosts, without a gateway on it."""
    facts = with_network(L2)
    return replace(
        facts,
        links={"cni-blue": HostLink(mtu=1500, is_stretched=True)},
        firewall=replace(facts.firewall, rules=(*DOCKER, *rules)),
        sysctls={**facts.sysctls, "net.bridge.bridge-nf-call-iptables": filtered},
    )


def test_a_stretched_bridge_whose_frames_are_dropped() -> None:
    """The finding has the command that accepts them."""
    finding = only(stretched())
    assert (finding.code, finding.severity) == ("bridged-dropped", Severity.WARNING)
    assert finding.fix == "iptables -I DOCKER-USER -s 10.22.0.0/28 -d 10.22.0.0/28 -j ACCEPT"
    assert "the policy DROP of chain FORWARD (iptables) drops what other hosts on bridge cni-blue send" in finding.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("net.ipv4.ip_forward", "0"),
        ("net.ipv6.conf.all.forwarding", "0"),
        ("net.ipv6.conf.all.disable_ipv6", "1"),
    ],
)
def test_a_setting(name: str, value: str) -> None:
    """The command sets it to the other value."""
    used = with_network(BRIDGE, FIREWALL, reserved=("10.22.0.2", "fd22::2"))
    finding = only(replace(used, sysctls={**HEALTHY.sysctls, name: value}))
    assert finding.subject == f"setting {name}"
    assert finding.fix.startswith(f"sysctl -w {name}=")
    assert f"{name}={value};" not in finding.fix


def test_a_stopped_daemon() -> None:
    """Docker has networks of it."""
    finding = only(replace(HEALTHY, installation=replace(HEALTHY.installation, daemon_pid=None)))
    assert (finding.severity, finding.code) == (Severity.ERROR, "daemon-stopped")


@pytest.mark.parametrize(
    ("owner", "mode", "private", "expected"),
    [
        (0, 0o40755, False, []),
        (1000, 0o100755, False, ["writable-by-others"]),
        (0, 0o100775, False, ["writable-by-others"]),
        (0, 0o40755, True, ["readable-by-others"]),
        (0, 0o40700, True, []),
        (0, 0o41777, False, ["writable-by-others"]),
        (1000, 0o41755, False, ["writable-by-others"]),
        (0, 0o100666, True, ["writable-by-others"]),
    ],
)
def test_permissions(owner: int, mode: int, private: bool, expected: list[str]) -> None:
    """Only root may change what root runs."""
    path = PathFacts(path=Path("/opt/cni/bin/bridge"), owner=owner, mode=mode, is_private=private)
    assert codes(replace(HEALTHY, installation=replace(HEALTHY.installation, paths=(path,)))) == expected


@pytest.mark.parametrize(
    ("owner", "mode", "expected"),
    [
        (0, 0o40755, []),
        (0, 0o41777, []),
        (0, 0o40777, ["writable-by-others"]),
        (0, 0o42775, ["writable-by-others"]),
        (1000, 0o40755, ["writable-by-others"]),
        (1000, 0o41777, ["writable-by-others"]),
    ],
)
def test_permissions_on_the_way(owner: int, mode: int, expected: list[str]) -> None:
    """Who can rename a directory replaces what is in it; not in one like /tmp, with what is root's."""
    path = PathFacts(path=Path("/opt"), owner=owner, mode=mode, leads_to=Path("/opt/cni/bin/bridge"))
    facts = replace(HEALTHY, installation=replace(HEALTHY.installation, paths=(path,)))
    assert codes(facts) == expected
    if expected:
        assert "may replace /opt/cni/bin/bridge, what the daemon runs" in only(facts).text
        assert only(facts).advice == "move /opt/cni/bin/bridge to where only root can write"


def host(**changes: object) -> Facts:
    """Return the host with other facts of its parts, each a mapping of the fields of one part."""
    parts = {name: replace(getattr(HEALTHY, name), **change) for name, change in changes.items()}  # type: ignore[arg-type]
    return replace(HEALTHY, **parts)


def units(*off: str) -> Facts:
    """Return the host with units that do not start at boot."""
    enabled = HEALTHY.installation.units or {}
    return host(installation={"units": {**enabled, **{f"cni-bridge.{unit}": "disabled" for unit in off}}})


NOT_YET = {"net.ipv4.ip_forward": "0", "net.ipv6.conf.all.forwarding": "0"}
ACCEPTING = {"rules": (":FORWARD DROP [0:0]", "-A FORWARD -i cni-blue -j ACCEPT")}
FORWARDED = replace(with_network(BRIDGE), firewall=host(firewall=ACCEPTING).firewall)
MACVLAN: JsonObject = {"type": "macvlan", "master": "eth0", "ipam": {"type": "host-local", "subnet": "10.22.0.0/28"}}
CASES: Mapping[str, tuple[Facts, list[str]]] = {
    "a rule accepts what the policy of FORWARD would drop": (FORWARDED, []),
    "a macvlan's packets leave through its parent": (with_network(MACVLAN), []),
    "frames of a stretched bridge are accepted by subnet": (stretched(ACCEPTED), []),
    "or by bridge": (stretched("-A DOCKER-USER -i cni-blue -o cni-blue -j ACCEPT"), []),
    "iptables does not see them": (stretched(filtered="0"), []),
    "they come from this host only": (
        replace(stretched(), links={"br0": HostLink(mtu=1500, is_stretched=True)}),
        [],
    ),
    "links have alternative names since 5.5": (replace(HEALTHY, kernel="5.4.0-100"), ["kernel-old"]),
    "such a kernel": (replace(HEALTHY, kernel="5.10.0"), []),
    "the plugins switch forwarding on with their first ADD": (replace(HEALTHY, sysctls=NOT_YET), []),
    "an old engine": (host(engine={"version": "19.03.15"}), ["engine-old"]),
    "Debian's": (host(engine={"version": "20.10.24+dfsg1"}), []),
    "before those that crash": (host(engine={"version": "28.5.2"}), []),
    "29.0.0 to 29.0.2 crash": (host(engine={"version": "29.0.0"}), ["engine-crashes"]),
    "the last of them": (host(engine={"version": "29.0.2"}), ["engine-crashes"]),
    "after them": (host(engine={"version": "29.0.3"}), []),
    "a version of a developer": (host(engine={"version": "dev"}), []),
    "Docker would give this driver's networks to a managed plugin": (
        host(engine={"namesake": "cni-bridge:latest"}),
        ["plugin-of-same-name"],
    ),
    "Docker did not get an answer in time when it enabled the plugin": (
        host(engine={"unused_plugin": "cni:latest"}),
        ["plugin-without-driver"],
    ),
    "without an answer nothing is known": (
        replace(HEALTHY, engine=EngineFacts(address="unix:///x", silence="no answer")),
        ["engine-silent"],
    ),
    "without root there are other namespaces": (host(engine={"is_rootless": True}), ["engine-rootless"]),
    "the driver must exist when Docker starts containers": (units("service", "socket"), ["boot-disabled"]),
    "the socket must exist while the daemon restarts": (units("socket"), ["socket-disabled"]),
    "it starts the daemon": (units("service"), []),
    "a full disk": (host(installation={"free_bytes": {Path("/var/lib/cni-bridge"): 1 << 20}}), ["disk-full"]),
    "a doctor without rights": (host(installation={"is_root": False}), ["not-root"]),
}


@pytest.mark.parametrize(("facts", "expected"), CASES.values(), ids=CASES)
def test_a_single_change(facts: Facts, expected: list[str]) -> None:
    """It is found, or is no fault."""
    assert codes(facts) == expected


def test_notes_do_not_count() -> None:
    """Before the installation no daemon runs, and that is no fault."""
    report = Report.of(replace(host(engine={"networks": ()}), installation=InstallationFacts()))
    assert [finding.severity for finding in report.findings] == [Severity.NOTE]
    assert report.is_good


@pytest.mark.parametrize(
    ("fix", "advice", "lines"),
    [
        ("modprobe vrf", "", ["    fix: modprobe vrf"]),
        ("modprobe vrf", "another kernel", ["    fix: modprobe vrf", "    or: another kernel"]),
        ("", "install another kernel", ["    do: install another kernel"]),
    ],
)
def test_only_a_command_is_called_a_fix(fix: str, advice: str, lines: list[str]) -> None:
    """Words after `fix:` would be typed into a shell."""
    finding = Finding(severity=Severity.ERROR, code="x", subject="vrf", text="missing", fix=fix, advice=advice)
    report = replace(Report.of(HEALTHY), findings=(finding,))
    _, found = report.render_text().split("\n\n", 1)
    assert found.splitlines() == ["ERROR  vrf (x)", "    missing", *lines, "", "1 error"]
