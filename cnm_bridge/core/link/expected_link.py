# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Foresees the link that plugins will make with reserved addresses, and compares it with what they made; pure.

`cnm_bridge.core.lists.changes` has the list that the plugins receive.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Final

from cni_bridge_spec import find_object
from cni_invoker import NetworkConfigurationList, PluginConfiguration, Result
from cnm_bridge.core.errors import Refused, network_option
from cnm_bridge.core.link.endpoint_replies import (
    given_addresses,
    is_automatic,
    prefix_route,
    reported_addresses,
)
from cnm_bridge.core.link.plan_sandbox import is_left_to_libnetwork
from cnm_bridge.core.link_state import (
    NO_PREFIX_ROUTE,
    SCOPE_GLOBAL,
    UNKNOWN_MTU,
    Address,
    IpAddress,
    IpInterface,
    LinkState,
    Snapshot,
    Sysctl,
)

_IPV4: Final = 4
_PERMANENT: Final = 0x80  # IFA_F_PERMANENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegate:
    """A plugin that delegates IPAM, and what is known about its link before it runs.

    Attributes:
        kind: The kernel's name of the link's kind.
        has_own_mac: Whether the link may have any MAC. If not, Docker does not learn it before Join.
        is_single: Whether it turns the prefix of each address into that of a single host, /32 or /128.
        lost: What Docker would not learn in mode *hybrid* and learns in mode *move*, in words; None if nothing.
    """

    kind: str
    has_own_mac: bool = True
    is_single: bool = False
    lost: str | None = None

    def made_of(self, given: IpInterface) -> IpInterface:
        """Return the address that its link has if its IPAM plugin gives this one."""
        return ip_interface(given.ip) if self.is_single else given


DELEGATES: Final[Mapping[str, Delegate]] = {
    "bridge": Delegate(kind="veth"),
    "calico": Delegate(
        kind="veth", has_own_mac=False, is_single=True, lost="the MAC of the link, which Calico chooses"
    ),
    "dummy": Delegate(kind="dummy"),
    "host-device": Delegate(kind="", has_own_mac=False, lost="the MAC of the device"),
    "ipvlan": Delegate(kind="ipvlan", has_own_mac=False),  # shares its parent's MAC, which Docker never learns
    "macvlan": Delegate(kind="macvlan"),
    "ptp": Delegate(kind="veth"),
    "tap": Delegate(kind="tun"),
    "vlan": Delegate(kind="vlan", has_own_mac=False, lost="the MAC of the link, which is that of its parent"),
}
"""Plugins that call `ipam.ExecAdd` with their own input and use all of its result (read in plugins 1.1.1 and 1.9.1,
and in Calico's source)."""

ANY_PLUGIN: Final = Delegate(kind="")
"""Stands for a plugin of which nothing is known."""


def describe_expected(
    delegate: Delegate,
    ifname: str,
    given: Sequence[IpInterface],
    mac: str | None,
    sysctls: Sequence[Sysctl],
) -> Snapshot:
    """Return the snapshot of a link that will be made, as far as it is known: what Docker learns at CreateEndpoint.

    It has the routes of the prefixes, so that Docker learns the addresses as the link will have them. The addresses are
    those that the IPAM plugin gave, in the order of its result.
    """
    given = tuple(map(delegate.made_of, given))
    # as in a snapshot: the kernel lists the latest IPv6 address first
    ipv4 = [address for address in given if isinstance(address, IPv4Interface)]
    ipv6 = [address for address in reversed(given) if isinstance(address, IPv6Interface)]
    listed: tuple[IpInterface, ...] = (*ipv4, *ipv6)
    addresses = tuple(Address(address=address, peer=None, scope=SCOPE_GLOBAL, flags=_PERMANENT) for address in listed)
    return Snapshot(
        link=LinkState(name=ifname, kind=delegate.kind or None, mac=mac, mtu=UNKNOWN_MTU, noarp=False),
        addresses=addresses,
        routes=tuple(map(prefix_route, listed)),
        sysctls=tuple(sysctls),
    )


def known_families(expected: Snapshot) -> frozenset[int]:
    """Return the address families (4, 6) whose gateway libnetwork accepts from an endpoint.

    It drops the IPv6 gateway of an endpoint whose IPv6 address it does not know (moby, `Endpoint.sbJoin`).
    """
    return frozenset({_IPV4}).union(address.version for address in given_addresses(expected))


def snapshot_for_join(snapshot: Snapshot, families: Collection[int]) -> Snapshot:
    """Return the part of a finished link's snapshot that determines the reply to Join: what libnetwork adds.

    These are the default routes of some families. The rest is in the sandbox already, and must not be synced.
    """
    first = {address.version: address for address in reversed(given_addresses(snapshot))}
    return replace(
        snapshot,
        addresses=tuple(address for address in snapshot.addresses if address.address in first.values()),
        routes=tuple(route for route in snapshot.routes if is_left_to_libnetwork(route, families)),
    )


def with_mac(snapshot: Snapshot, mac: str) -> Snapshot:
    """Return the snapshot of a link that gets another MAC when Docker moves it.

    The address that the kernel derives from the MAC is left out: the kernel replaces it.
    """
    return replace(
        snapshot,
        link=replace(snapshot.link, mac=mac),
        addresses=tuple(address for address in snapshot.addresses if not is_automatic(address, snapshot.link)),
    )


def snapshot_for_move(snapshot: Snapshot, expected: Snapshot) -> Snapshot:
    """Return the snapshot of a finished link that libnetwork moves, as Docker has learnt it before.

    If the plugins removed the route of a prefix that Docker knows, the kernel will add it again with the address, and
    it must be removed. Such an address becomes one without the route of its prefix. The MAC is the one that libnetwork
    will set. The expected settings are added.
    """
    bare = set(reported_addresses(expected)).difference(reported_addresses(snapshot))
    sysctls = {sysctl.name: sysctl for sysctl in (*snapshot.sysctls, *expected.sysctls)}
    if expected.link.mac is not None:
        snapshot = with_mac(snapshot, expected.link.mac)
    return replace(
        snapshot,
        addresses=tuple(
            replace(address, flags=address.flags | NO_PREFIX_ROUTE) if address.address in bare else address
            for address in snapshot.addresses
        ),
        sysctls=tuple(sysctls.values()),
    )


def refuse_missing_addresses(
    configuration: NetworkConfigurationList, wanted: Iterable[IpAddress], snapshot: Snapshot
) -> None:
    """Refuse an attachment without an address that was requested, or that Docker knows already.

    A wanted address with a prefix length must be there with it.
    """
    given = given_addresses(snapshot)
    missing = sorted(map(str, set(wanted).difference(given, (address.ip for address in given))))
    if missing:
        raise Refused(
            f"the plugins of CNI configuration {configuration.name} did not assign {', '.join(missing)} but "
            f"{_listed(given)}; its IPAM plugin must accept requested addresses, as host-local and static do, and its "
            "subnet must contain them"
        )


def refuse_changed(
    configuration: NetworkConfigurationList, reserved: Result, result: Result, snapshot: Snapshot
) -> None:
    """Refuse an attachment that differs from what was reserved for it, and so from what Docker knows.

    The error names the difference: of addresses, a gateway, a route or the name servers.
    """
    difference = next(_differences(configuration.plugins[1], reserved, result, snapshot), None)
    if difference is not None:
        raise Refused(
            f"the plugins of CNI configuration {configuration.name} changed what their IPAM plugin "
            f"{configuration.plugins[0].type} had reserved: {difference}; make the network with "
            f"{network_option('cni.attach', 'move')} if its list can be moved, or change the list"
        )


def _differences(main: PluginConfiguration, reserved: Result, result: Result, snapshot: Snapshot) -> Iterator[str]:
    delegate = DELEGATES.get(main.type, ANY_PLUGIN)
    ips = [replace(ip, address=delegate.made_of(ip.address)) for ip in reserved.ips]
    wanted = {ip.address for ip in ips}
    given = set(given_addresses(snapshot))
    if given != wanted:
        yield f"the link has {_listed(given)}, not {_listed(wanted)}"
    gateways = {ip.address: ip.gateway for ip in result.ips}
    for ip in ips:
        gateway = gateways.get(ip.address, ip.gateway)  # a plugin at the end of the list may print no addresses
        if ip.gateway is not None and gateway != ip.gateway:
            yield f"the gateway of {ip.address} is {gateway}, not {ip.gateway}"
    routes = {(route.dst, route.gw) for route in result.routes}
    missing = [str(route.dst) for route in reserved.routes if result.routes and (route.dst, route.gw) not in routes]
    if missing:
        yield f"there is no route to {', '.join(missing)}"
    if any(reserved.dns.nameservers) and reserved.dns != result.dns and not find_object(main.document, "dns"):
        yield f"the name servers are {_listed(result.dns.nameservers)}, not {_listed(reserved.dns.nameservers)}"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, values))) or "none"
