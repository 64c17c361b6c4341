# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A host without faults, of which tests change single facts."""

from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList
from cnm_bridge.operator.doctor.facts import (
    ConfiguredNetwork,
    DockerNetwork,
    EngineFacts,
    Facts,
    Finding,
    FirewallFacts,
    InstallationFacts,
)
from cnm_bridge.operator.doctor.report import Report

BRIDGE: JsonObject = {
    "type": "bridge",
    "bridge": "cni-blue",
    "isGateway": True,
    "ipMasq": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.22.0.0/28"}], [{"subnet": "fd22::/64"}]]},
}
FIREWALL: JsonObject = {"type": "firewall"}


def configured(
    *plugins: JsonObject,
    name: str = "blue",
    reserved: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> ConfiguredNetwork:
    """Return a network with these plugins."""
    document: JsonObject = {"cniVersion": "1.0.0", "name": name, "plugins": list(plugins)}
    network = NetworkConfigurationList.from_document(document, source=Path(f"/etc/cni/net.d/{name}.conflist"))
    return ConfiguredNetwork(
        network=network, reserved=tuple(map(ip_address, reserved)), problems=problems, warnings=warnings
    )


HEALTHY = Facts(
    kernel="6.1.0-31-amd64",
    sysctls={"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"},
    firewall=FirewallFacts(iptables="iptables v1.8.9 (nf_tables)", rules=(":FORWARD DROP [0:0]",), rules_ipv6=()),
    engine=EngineFacts(
        address="unix:///run/docker.sock",
        version="28.5.2",
        networks=(DockerNetwork(name="blue", configuration="blue"),),
    ),
    networks=(configured(BRIDGE, FIREWALL),),
    routes=(),
    conf_dirs=(Path("/etc/cni/net.d"),),
    bin_dirs=(Path("/opt/cni/bin"),),
    installation=InstallationFacts(
        daemon_pid=812,
        units={
            "cni-bridge.service": "enabled",
            "cni-bridge.socket": "enabled",
            "docker.service": "enabled",
        },
    ),
)


def with_network(*plugins: JsonObject, reserved: tuple[str, ...] = ()) -> Facts:
    """Return the host with one network."""
    return replace(HEALTHY, networks=(configured(*plugins, reserved=reserved),))


def codes(facts: Facts) -> list[str]:
    """Return the codes of all findings."""
    return [finding.code for finding in Report.of(facts).findings]


def only(facts: Facts) -> Finding:
    """Return the only finding."""
    (finding,) = Report.of(facts).findings
    return finding
