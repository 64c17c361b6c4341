# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the host's links fit the lists."""

from collections.abc import Iterator
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, find_int, find_str
from cnm_bridge.core.errors import did_you_mean
from cnm_bridge.core.link_state import IpInterface
from cnm_bridge.core.lists.address_ranges import find_ranges
from cnm_bridge.core.lists.plugins import bridge_of, find_missing_links, forwarding_links
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts, Finding, Severity, error
from cnm_bridge.operator.host import is_of_container

_IPV4: Final = 4
_DEFAULT_MTU: Final = 1500
"""Bytes: that of the links which `bridge` and `ptp` make."""
_ON_PARENT: Final = frozenset({"macvlan", "ipvlan"})
_FORWARDING: Final = frozenset({"bridge", "ptp"})


def check_links(facts: Facts) -> Iterator[Finding]:
    """Find bridges with other addresses, missing links, and MTUs that are too large."""
    for configured in facts.networks:
        yield from _check_bridges(facts, configured)
        yield from _check_missing(facts, configured)
        yield from _check_mtu(facts, configured)


def _check_bridges(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    """Find addresses of a bridge because of which the plugin `bridge` refuses to add its own (`ensureAddr`)."""
    network = configured.network
    wanted = frozenset(ip_interface((one.gateway, one.subnet.prefixlen)) for one in find_ranges(network))
    for plugin in network.plugins:
        name = bridge_of(plugin.document) if plugin.type == "bridge" else None
        link = facts.links.get(name or "")
        if name not in forwarding_links(network) or link is None or plugin.document.get("forceAddress") is True:
            continue
        for address in link.addresses:
            if address in wanted or not any(_excludes(address, one) for one in wanted):
                continue
            yield error(
                "bridge-address",
                f"network {network.name}",
                f"its bridge {name} has the address {address}, and the plugin bridge refuses to add "
                f"{', '.join(sorted(map(str, wanted)))}: no container starts on it",
                fix=f"ip address del {address} dev {name}",
                advice="give the list another bridge, if something else uses this one",
            )


def _excludes(existing: IpInterface, gateway: IPv4Interface | IPv6Interface) -> bool:
    """Return whether a bridge with an address does not get a gateway's: a second one of IPv4, or in its subnet."""
    if existing.version != gateway.version or existing.is_link_local:
        return False
    return gateway.version == _IPV4 or gateway.ip in existing.network or existing.ip in gateway.network


def _check_mtu(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    network = configured.network
    uplinks = {route.link for route in facts.routes if route.destination.prefixlen == 0}
    for plugin in network.plugins:
        on_parent = plugin.type in _ON_PARENT
        if not on_parent and (plugin.type not in _FORWARDING or not forwarding_links(network)):
            continue
        parent = find_str(plugin.document, "master") if on_parent else None
        known = {name: facts.links[name].mtu for name in ({parent} if parent else uplinks) if name in facts.links}
        given = _find_mtu(plugin.document)
        mtu = given or (0 if on_parent else _DEFAULT_MTU)
        if not known or mtu <= min(known.values()):
            continue
        uplink = min(known, key=lambda name: (known[name], name))
        users = [one for one in facts.engine.networks if one.configuration == network.name]
        containers = sorted({name for one in users for name in one.containers})
        yield Finding(
            severity=Severity.ERROR if on_parent else Severity.WARNING,
            code="mtu-above-uplink",
            subject=f"network {network.name}",
            text=f"its links have an MTU of {mtu}{'' if given else ', the default'}, and {uplink} has {known[uplink]}: "
            + (
                "the plugin refuses it"
                if on_parent
                else "large packets to the outside are lost where messages of ICMP are dropped"
            ),
            advice=f'set "mtu": {known[uplink]} for the plugin {plugin.type} in {network.source or network.name}'
            + (f", then: docker restart {' '.join(containers)}" if containers else ""),
        )


def _find_mtu(document: JsonObject) -> int | None:
    try:
        return find_int(document, "mtu")
    except JsonError:  # the plugin refuses it
        return None


def _check_missing(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    """Find a parent or a device that is not there, such as a NIC that was removed."""
    network = configured.network
    existing = frozenset(one for name, link in facts.links.items() for one in (name, *link.altnames))
    likely = existing - {name for name, link in facts.links.items() if is_of_container(name, link.kind)}
    in_use = any(endpoint.configuration == network.name for endpoint in facts.endpoints)
    is_used = any(one.configuration == network.name for one in facts.engine.networks)
    for name, what in find_missing_links(network, existing, in_use=in_use) if existing else ():
        near = did_you_mean(name, likely, cutoff=0.6)
        yield Finding(
            severity=Severity.ERROR if is_used else Severity.WARNING,
            code="link-missing",
            subject=f"network {network.name}",
            text=f"the host has no link {name}, the {what}: no container starts on it, and one that runs does not "
            "start again" + (f"; {near}" if near else ""),
            advice=f"bring {name} back, or correct its name in {network.source or 'the list'}; `ip link` shows all",
        )
