# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the host has the links through which containers are on a LAN, and keeps its own place there."""

from collections.abc import Iterator
from difflib import get_close_matches

from cni_bridge_spec import find_object
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.model.dhcp import find_dhcp
from cnm_bridge.core.planning.addresses.address_ranges import find_ranges
from cnm_bridge.core.planning.plugin_needs import bridges, find_missing_links, forwarding_links
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts
from cnm_bridge.operator.doctor.finding import Finding, Severity
from cnm_bridge.operator.host_links import HostLink


def check_uplinks(facts: Facts) -> Iterator[Finding]:
    """Find missing parents and devices, and bridges of the host that lead nowhere or change their MAC."""
    for configured in facts.networks:
        yield from _check_missing(facts, configured)
        network = configured.network
        for name in bridges(network):
            link = facts.links.get(name)
            if link is None or name in forwarding_links(network):  # the plugin sets the MAC of a bridge with a gateway
                continue
            yield from _check_mac(network, name, link)
            yield from _check_uplink(facts, network, name, link)


def _check_missing(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    """Find a parent or a device that is not there, such as a NIC that was removed."""
    network = configured.network
    existing = frozenset(one for name, link in facts.links.items() for one in (name, *link.altnames))
    in_use = any(one.configuration == network.name for one in facts.endpoints)
    is_used = any(one.configuration == network.name for one in facts.engine.networks)
    for name, what in find_missing_links(network, existing, in_use=in_use) if existing else ():
        near = get_close_matches(name, existing, n=1)
        yield Finding(
            severity=Severity.ERROR if is_used else Severity.WARNING,
            code="link-missing",
            subject=f"network {network.name}",
            text=f"the host has no link {name}, the {what}: no container starts on it, and one that runs does not "
            "start again" + (f"; did you mean {near[0]}?" if near else ""),
            advice=f"bring {name} back, or correct its name in {network.source or 'the list'}; `ip link` shows all",
        )


def _check_mac(network: NetworkConfigurationList, name: str, link: HostLink) -> Iterator[Finding]:
    """Find a bridge whose MAC the kernel chooses from those of its ports, also from those of containers' links."""
    if link.is_stretched and not link.keeps_mac and any(not one.is_link_local for one in link.addresses):
        yield Finding(
            severity=Severity.WARNING,
            code="bridge-mac",
            subject=f"network {network.name}",
            text=f"its bridge {name}, which has addresses of the host, takes the MAC of one of its ports: it may "
            "change when a container starts or ends, and then others on the LAN lose the host",
            fix=f"ip link set dev {name} address $(cat /sys/class/net/{name}/address)",
            advice=f"set it where {name} is configured, for the next boot as well (systemd-networkd: MACAddress=)",
        )


def _check_uplink(facts: Facts, network: NetworkConfigurationList, name: str, link: HostLink) -> Iterator[Finding]:
    """Find a bridge without a way to the router that its containers have."""
    taken = {address.ip for one in facts.endpoints if one.configuration == network.name for address in one.addresses}
    own = {address.ip for address in link.addresses}
    routers = {one.gateway for one in find_ranges(network)}
    ipam = find_object(network.plugins[0].document, "ipam") or {}
    has_router = bool(ipam.get("routes")) or find_dhcp(network) is not None
    if taken and has_router and not (link.is_stretched or link.has_machines or routers & (taken | own)):
        yield Finding(
            severity=Severity.WARNING,
            code="bridge-without-uplink",
            subject=f"network {network.name}",
            text=f"its bridge {name} has no port that leads out of the host, and the list has a router there: its "
            "containers reach only each other",
            advice=f"add the host's link to the LAN: ip link set dev LINK master {name}",
        )
