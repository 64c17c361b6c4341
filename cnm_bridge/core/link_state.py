# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The snapshot: what the plugins left in the namespace where they ran, as records and as JSON.

A link loses its addresses and routes when it moves to another namespace. The snapshot is taken before; the reply to
Join and the sandbox plan are made from it. Pure: `capture.py` reads the kernel.

As JSON (schema `state/snapshot` in `spec`), always with all keys:

```
{"link": {"name": "eth0", "kind": "veth", "mac": "ee:77:5c:0d:4a:3b", "mtu": 1500, "noarp": false},
 "addresses": [
   {"address": "10.1.2.3/24", "peer": null, "broadcast": "10.1.2.255", "scope": 0, "flags": 128,
    "metric": null, "label": null},
   {"address": "fe80::ec77:5cff:fe0d:4a3b/64", "peer": null, "broadcast": null, "scope": 253, "flags": 192,
    "metric": null, "label": null}],
 "routes": [
   {"destination": "10.1.2.0/24", "gateway": null, "table": 254, "metric": 0, "type": 1, "scope": 253, "protocol": 2,
    "source": "10.1.2.3", "onlink": false, "mtu": null, "advmss": null},
   {"destination": "0.0.0.0/0", "gateway": "10.1.2.1", "table": 254, "metric": 0, "type": 1, "scope": 0, "protocol": 3,
    "source": null, "onlink": false, "mtu": 1400, "advmss": null}],
 "rules": [{"priority": 100, "table": 100, "message": "0200000064000001000000000800060064000000"}],
 "neighbours": [{"address": "10.1.2.9", "mac": "02:00:00:00:00:09", "proxy": false}],
 "sysctls": [{"name": "net/ipv4/conf/eth0/arp_notify", "value": "1"}]}
```

`kind`, `mac`, `peer`, `broadcast`, `label`, the `metric` of an address, and of a route `gateway`, `source`,
`mtu` and `advmss` may be null. Numbers are the kernel's (rtnetlink(7)): scope 0 global, 253 link, 254 host; table 254
main; type 1 unicast; protocol 2 kernel, 3 boot.

Rules are kept as the bytes that the kernel reported. It accepts them in the same form, including attributes
that this program does not know.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network, ip_interface
from typing import Final, Self

from cni_bridge_spec import JsonObject
from cni_bridge_state.documents import parse, render

IpAddress = IPv4Address | IPv6Address
IpInterface = IPv4Interface | IPv6Interface
IpNetwork = IPv4Network | IPv6Network

SCOPE_GLOBAL: Final = 0
SCOPE_LINK: Final = 253
MAIN_TABLE: Final = 254
UNICAST: Final = 1
UNKNOWN_MTU: Final = 0
BY_KERNEL: Final = 2
NO_PREFIX_ROUTE: Final = 0x200  # IFA_F_NOPREFIXROUTE
IPV6_LINK_LOCAL: Final = IPv6Network("fe80::/64")

_PERMANENT: Final = 0x80  # IFA_F_PERMANENT
_DEPRECATED: Final = 0x20  # IFA_F_DEPRECATED
_ANNOUNCED: Final = 0x01 | 0x100  # IFA_F_TEMPORARY, IFA_F_MANAGETEMPADDR: made from router advertisements


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A policy rule.

    Attributes:
        priority: Lower numbers are evaluated first.
        table: The routing table that it selects, 0 for none.
        message: The kernel's message (`fib_rule_hdr` and attributes) without transient state.
    """

    priority: int
    table: int
    message: bytes

    def __str__(self) -> str:
        return f"rule {self.priority} to table {self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A permanent entry of the neighbour table.

    Attributes:
        mac: Its Ethernet address, None if the link needs none.
        proxy: Whether the link answers on its behalf (proxy ARP or NDP).
    """

    address: IPv4Address | IPv6Address
    mac: str | None
    proxy: bool

    def __str__(self) -> str:
        return f"neighbour {self.address}" + (" proxy" if self.proxy else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysctl:
    """A setting that plugins changed; its name is a path below /proc/sys, e.g. `net/ipv4/conf/eth0/arp_notify`."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"sysctl {self.name.replace('/', '.')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What to capture in a staging namespace besides links, addresses, routes, rules and neighbours.

    Attributes:
        settings: Names of settings to compare, None for all.
        stated: Names of settings that the configuration makes plugins set. They are captured even if unchanged, because
            Docker sets other values for some of them.
        thorough: Whether to check for everything that a snapshot cannot hold, such as packet filter rules.
    """

    settings: tuple[str, ...] | None = ()
    stated: tuple[str, ...] = ()
    thorough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState:
    """The state of a link.

    Attributes:
        name: Its name in the namespace in which it was found.
        kind: The kernel's name of its kind, e.g. `veth`, `macvlan`, `ipvlan`; None for a physical device.
        mac: Its Ethernet address, e.g. `ee:77:5c:0d:4a:3b`; None for a device that has none.
        mtu: Its MTU, in bytes; `UNKNOWN_MTU` if the link has only been foreseen.
        noarp: Whether it does not resolve addresses (IFF_NOARP), as layer 3 devices do not.
    """

    name: str
    kind: str | None
    mac: str | None
    mtu: int
    noarp: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address of a link.

    Attributes:
        peer: The remote address of a point-to-point link, to which the prefix then belongs; otherwise None.
        flags: The kernel's IFA_F_ flags.
        broadcast: The broadcast address; IPv4 only, None if it is not set.
        metric: The metric of its prefix's route, None for the kernel's default.
        label: The part of its label after the link's name, e.g. `:1`; None if it is empty.
    """

    address: IpInterface
    peer: IpAddress | None
    scope: int
    flags: int
    broadcast: IpAddress | None = None
    metric: int | None = None
    label: str | None = None

    @property
    def is_permanent(self) -> bool:
        """Whether it has no lifetime; addresses from router advertisements and DHCP clients have one."""
        return bool(self.flags & _PERMANENT)

    @property
    def is_leased(self) -> bool:
        """Whether it has a lifetime that a program must renew; routers renew those from their advertisements."""
        is_announced = isinstance(self.address, IPv6Interface) and self.flags & _ANNOUNCED
        return not self.is_permanent and not is_announced

    @property
    def prefix(self) -> IpNetwork:
        """The network whose route the kernel adds with it: the peer's, if there is one."""
        if self.peer is None:
            return self.address.network
        return ip_interface((self.peer, self.address.network.prefixlen)).network

    @property
    def is_deprecated(self) -> bool:
        """Whether the kernel prefers other addresses as the source (IFA_F_DEPRECATED)."""
        return bool(self.flags & _DEPRECATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route through a link.

    Attributes:
        destination: `0.0.0.0/0` or `::/0` for a default route.
        gateway: The next hop, possibly of the other address family; None for a connected route.
        type: The kernel's RTN_ number, e.g. `UNICAST`.
        scope: The distance to the destination, e.g. `SCOPE_LINK`.
        protocol: Its origin: 2 for the kernel, which adds it with an address; usually 3 for plugins.
        onlink: Whether the gateway counts as directly reachable without a route to it.
        mtu: The MTU of the path, in bytes.
        advmss: The segment size that TCP advertises, in bytes.
    """

    destination: IpNetwork
    gateway: IpAddress | None
    table: int
    metric: int
    type: int
    scope: int
    protocol: int
    source: IpAddress | None
    onlink: bool
    mtu: int | None
    advmss: int | None

    def __str__(self) -> str:
        via = f" via {self.gateway}" if self.gateway else ""
        return f"{self.destination}{via}, metric {self.metric}, table {self.table}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the plugins left in the namespace where they ran.

    Attributes:
        addresses: Its addresses in the kernel's order: IPv4 as added; IPv6 by scope, then the latest first.
        routes: The routes through it in all tables except `local`, which the kernel fills; IPv4 first.
        rules: The policy rules that the kernel did not make.
        sysctls: The settings of link and namespace that plugins changed, in the order to set them.
    """

    link: LinkState
    addresses: tuple[Address, ...]
    routes: tuple[Route, ...]
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: tuple[Sysctl, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the JSON form shown in the module docstring."""
        return render(self)

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the JSON form: the inverse of `to_json`."""
        return parse(cls, document)


def without_announced(routes: Iterable[Route], addresses: Iterable[Address]) -> tuple[Route, ...]:
    """Return the routes of a link without those that the kernel has learnt from router advertisements.

    Plugins and advertisements reach a link at the same time. What was learnt in a staging namespace is learnt again in
    the sandbox, so it must neither be in the reply to Join nor be synced.

    An announced prefix without a lifetime has a route like that of an address, but no address of a plugin has it. It
    may have no address at all, as where only DHCPv6 assigns them.
    """
    given = {address.prefix for address in addresses if address.is_permanent}
    return tuple(route for route in routes if route.destination in given or not _is_of_prefix(route))


def find_dynamic(addresses: Iterable[Address]) -> tuple[IpInterface, ...]:
    """Return the addresses with a lifetime (`ip address` calls them dynamic), without link-local ones."""
    return tuple(address.address for address in addresses if not address.is_permanent and address.scope != SCOPE_LINK)


def _is_of_prefix(route: Route) -> bool:
    """Return whether the kernel has added an IPv6 route for a prefix other than the link-local one."""
    return (
        isinstance(route.destination, IPv6Network)
        and (route.table, route.protocol, route.gateway) == (MAIN_TABLE, BY_KERNEL, None)
        and route.destination != IPV6_LINK_LOCAL
    )
