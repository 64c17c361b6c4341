# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Further contents of a snapshot: policy rules, neighbours, sysctls and the qdisc. Pure.

Rules and qdiscs are kept as the bytes that the kernel reported. It accepts them in the same form, including attributes
that this program does not know.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address


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
        address: The neighbour's IP address.
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
    """A setting that plugins changed.

    Attributes:
        name: Its path below /proc/sys in the staging namespace, e.g. `net/ipv4/conf/eth0/arp_notify`.
        value: Its value, e.g. `1`.
    """

    name: str
    value: str

    def __str__(self) -> str:
        return f"sysctl {self.name.replace('/', '.')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Qdisc:
    """The root qdisc of a link, if it is not the kernel's default.

    Attributes:
        kind: Its kind, e.g. `tbf`.
        handle: Its handle as a number.
        options: The bytes of TCA_OPTIONS.
    """

    kind: str
    handle: int
    options: bytes

    def __str__(self) -> str:
        return f"qdisc {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What to capture in a staging namespace besides links, addresses, routes, rules, neighbours and qdiscs.

    Attributes:
        settings: Names of settings to compare, None for all.
        stated: Names of settings that the configuration makes plugins set. They are captured even if unchanged, because
            Docker sets other values for some of them.
        thorough: Whether to check for everything that a snapshot cannot hold, such as packet filter rules.
    """

    settings: tuple[str, ...] | None = ()
    stated: tuple[str, ...] = ()
    thorough: bool = False
