# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a snapshot holds of a namespace besides a link, its addresses and its routes. Pure.

Rules and qdiscs are kept as the kernel told them, byte for byte: it takes them again in the same form, with everything
that it knows of them and this program does not.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Self

from spec import JsonObject, find_str, get_bool, get_int, get_str

__all__ = ["Neighbour", "Qdisc", "Rule", "Sysctl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A policy rule.

    Attributes:
        priority: The lower is asked first.
        table: The routing table that it leads to, 0 for none.
        message: The kernel's message (`fib_rule_hdr` and attributes), without what tells of a moment's state.
    """

    priority: int
    table: int
    message: bytes

    def __str__(self) -> str:
        return f"rule {self.priority} to table {self.table}"

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {"priority": self.priority, "table": self.table, "message": self.message.hex()}

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the JSON form."""
        return cls(
            priority=get_int(document, "priority"),
            table=get_int(document, "table"),
            message=bytes.fromhex(get_str(document, "message")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A permanent entry of the neighbour table.

    Attributes:
        address: The neighbour's.
        mac: Its Ethernet address, None where the link needs none.
        proxy: The link answers for it instead.
    """

    address: IPv4Address | IPv6Address
    mac: str | None
    proxy: bool

    def __str__(self) -> str:
        return f"neighbour {self.address}" + (" proxy" if self.proxy else "")

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {"address": str(self.address), "mac": self.mac, "proxy": self.proxy}

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the JSON form."""
        return cls(
            address=ip_address(get_str(document, "address")),
            mac=find_str(document, "mac"),
            proxy=get_bool(document, "proxy"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysctl:
    """A setting that plugins changed.

    Attributes:
        name: Its path below /proc/sys in the staging namespace, e.g. `net/ipv4/conf/eth0/arp_notify`.
        value: What it is, e.g. `1`.
    """

    name: str
    value: str

    def __str__(self) -> str:
        return f"sysctl {self.name.replace('/', '.')}"

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {"name": self.name, "value": self.value}

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the JSON form."""
        return cls(name=get_str(document, "name"), value=get_str(document, "value"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Qdisc:
    """The root qdisc of a link, where it is not the kernel's own choice.

    Attributes:
        kind: E.g. `tbf`.
        handle: Its number.
        options: The kernel's TCA_OPTIONS.
    """

    kind: str
    handle: int
    options: bytes

    def __str__(self) -> str:
        return f"qdisc {self.kind}"

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {"kind": self.kind, "handle": self.handle, "options": self.options.hex()}

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the JSON form."""
        return cls(
            kind=get_str(document, "kind"),
            handle=get_int(document, "handle"),
            options=bytes.fromhex(get_str(document, "options")),
        )
