# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Decides which queries are forwarded, and what of an answer a container may see and reach. Values in, values out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from cni_egress.message import CLASS_IN, Query, Rcode, Record, Response, Type, has_dot, read_target
from cni_egress.policy import Policy
from cni_egress.records import IpAddress

__all__ = ["LONGEST_TTL_S", "Kept", "decide", "has_network", "is_public", "keep", "refusal"]


LONGEST_TTL_S: Final = 3600
"""A name is asked for again after an hour at most, whatever TTL it has; an upstream may send 68 years."""

_CHAIN: Final = 16
"""How many CNAME records are followed."""
_ADDRESSES: Final = 256
"""How many addresses of an answer count. An answer by UDP has less than a third of that."""
_QUERY: Final = 0
_EMPTY: Final = frozenset({Type.HTTPS, Type.SVCB, Type.ANY})
"""They repeat addresses as hints, which a client would use without asking for them; it then asks for A and AAAA."""
_META: Final = range(128, 255)
"""Types that are no data: transfers of zones, keys and signatures of transactions (RFC 6895, section 3.1)."""
_LENGTHS: Final = {Type.A: 4, Type.AAAA: 16}

_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_CLOUDS: Final = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))
"""Metadata services of clouds (Azure, Oracle), whose addresses some versions of `ipaddress` take for public."""


def decide(query: Query, *, is_allowed: bool) -> Rcode | None:
    """Return how a query is answered without asking anyone; None if it is forwarded.

    Args:
        query: The query.
        is_allowed: Whether the policy has the name, in any protocol and port.
    """
    question = query.question
    if query.opcode != _QUERY:
        return Rcode.NOTIMP
    if question.klass != CLASS_IN or question.type in _META or question.type == Type.OPT:
        return Rcode.REFUSED
    if not is_allowed:
        return refusal(query)
    return Rcode.NOERROR if question.type in _EMPTY else None


def refusal(query: Query) -> Rcode:
    """Return the outcome for a name that is not allowed.

    With NXDOMAIN a look-up fails at once. dockerd makes SERVFAIL of REFUSED, after which musl waits for five seconds.
    But musl asks all servers at the same time, and takes the first NXDOMAIN as well as the first address. So a name
    without a dot, which may be another container's, is left to dockerd's server.
    """
    return Rcode.NXDOMAIN if has_dot(query.question.name) else Rcode.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is left of an answer.

    Attributes:
        rcode: The outcome.
        records: The CNAME records from the question's name on, and the records of its type behind them.
        soa: How long a negative answer holds.
        addresses: The public ones among its addresses, which are to be opened.
        dropped: The addresses that were taken out.
        ttl_s: The shortest TTL of the records, in seconds.
    """

    rcode: int
    records: tuple[Record, ...] = ()
    soa: Record | None = None
    addresses: tuple[IpAddress, ...] = ()
    dropped: tuple[IpAddress, ...] = ()
    ttl_s: int = 0

    def without(self, local: frozenset[IpAddress]) -> "Kept":
        """Return it without some of its addresses: those of the host."""
        if local.isdisjoint(self.addresses):
            return self
        data = {address.packed for address in local}
        return replace(
            self,
            records=tuple(one for one in self.records if one.type not in _LENGTHS or one.data not in data),
            addresses=tuple(one for one in self.addresses if one not in local),
            dropped=(*self.dropped, *(one for one in self.addresses if one in local)),
        )


def keep(response: Response, *, permits: Callable[[IpAddress], bool]) -> Kept:
    """Return what of a response is passed on.

    Records that do not belong to the question are left out, and addresses that are not public: a public name must not
    lead to a neighbour, to the host or to a cloud's metadata.

    Args:
        response: The response to the question.
        permits: Returns whether the policy has a network with an address that is not public. It is passed on then, but
            the name opens nothing there.
    """
    if response.rcode not in {Rcode.NOERROR, Rcode.NXDOMAIN}:
        return Kept(rcode=Rcode.SERVFAIL)
    chain, owner = _follow(response)
    records: list[Record] = []
    opened: dict[IpAddress, None] = {}
    dropped: list[IpAddress] = []
    length = _LENGTHS.get(response.question.type)  # type: ignore[call-overload]
    for record in response.answers:
        if (record.name, record.type, record.klass) != (owner, response.question.type, CLASS_IN):
            continue
        if length is not None:
            address = _address(record.data, length)
            if address is None or len(opened) == _ADDRESSES:
                continue
            if is_public(address):
                opened[address] = None
            elif not permits(address):
                dropped.append(address)
                continue
        records.append(record)
    found = [*chain, *records]
    limited = tuple(replace(one, ttl=min(one.ttl, LONGEST_TTL_S)) for one in found)
    return Kept(
        rcode=response.rcode,
        records=limited,
        soa=response.soa if not records else None,
        addresses=tuple(opened),
        dropped=tuple(dropped),
        ttl_s=min((one.ttl for one in limited), default=0),
    )


def _follow(response: Response) -> tuple[list[Record], bytes]:
    """Return the CNAME records from the question's name on, and the name at their end."""
    owner = response.question.name
    chain: list[Record] = []
    if response.question.type == Type.CNAME:
        return chain, owner
    aliases = {one.name: one for one in reversed(response.answers) if one.type == Type.CNAME and one.klass == CLASS_IN}
    while owner in aliases and len(chain) < _CHAIN:
        alias = aliases.pop(owner)  # once only: a loop ends
        chain.append(alias)
        owner = read_target(alias)
    return chain, owner


def _address(data: bytes, length: int) -> IpAddress | None:
    if len(data) != length:
        return None
    return IPv4Address(data) if length == _LENGTHS[Type.A] else IPv6Address(data)


@lru_cache(maxsize=4096)
def is_public(address: IpAddress) -> bool:
    """Return whether an address is one of the public internet.

    An IPv6 address that has an IPv4 address in it is not, but for NAT64 with a public one.
    """
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return is_public(IPv4Address(address.packed[-4:]))
        return address in _UNICAST and address.is_global and address.sixtofour is None and address.teredo is None
    is_special = address.is_multicast or address.is_reserved or any(address in network for network in _CLOUDS)
    return address.is_global and not is_special


def has_network(policy: Policy, address: IpAddress) -> bool:
    """Return whether a policy has a network with an address."""
    return any(address in rule.network for rule in policy.networks)
