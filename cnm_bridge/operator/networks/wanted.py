# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The network that an operator asks for. Pure.

An error names the option and what to write instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import pairwise
from typing import Final

from cni_invoker.documents.checks import check_ifname, check_network_name
from cni_invoker.errors import InvalidParameter
from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.lists.address_ranges import AddressRange

_Subnet = IPv4Network | IPv6Network
_Address = IPv4Address | IPv6Address

_IPV4: Final = 4
_LONGEST: Final = {4: 30, 6: 126}
"""host-local refuses smaller subnets."""
_UNUSABLE: Final = {
    ip_network(text): what
    for text, what in {
        "0.0.0.0/8": "stand for this host",
        "127.0.0.0/8": "are for loopback",
        "169.254.0.0/16": "are link-local",
        "224.0.0.0/4": "are for multicast",
        "240.0.0.0/4": "are reserved",
        "::/8": "are reserved, ::1 among them",
        "fe80::/10": "are link-local",
        "ff00::/8": "are for multicast",
    }.items()
}
_SMALLEST_MTU: Final = {4: 68, 6: 1280}
"""RFC 791 and RFC 8200."""
_LARGEST_MTU: Final = 65535
_NAME_CHARACTERS: Final = 255 - len(".conflist")
"""A file's name has at most 255 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedNetwork:
    """A network: containers on a bridge of their own, or on the LAN of a parent link.

    Attributes:
        ranges: The addresses of containers, one range for each family, with their gateway; none with DHCP.
        parent: The name of the parent link, None for a bridge.
        is_masqueraded: Whether packets that leave the host have its address; only used for a bridge.
        mtu: The MTU of the containers' links, in bytes; None leaves it to the plugin.
        allow: What containers may reach, as the plugin `egress` writes it; only used for a bridge.
        is_audited: Whether everything passes, and what `allow` does not have is logged.
    """

    name: str
    ranges: tuple[AddressRange, ...]
    parent: str | None = None
    is_masqueraded: bool = True
    is_isolated: bool = False
    mtu: int | None = None
    has_limits: bool = False
    may_overlap: bool = False
    allow: tuple[str, ...] = ()
    is_audited: bool = False

    @property
    def is_guarded(self) -> bool:
        """Whether containers reach only what is allowed, or what they reach is logged."""
        return bool(self.allow) or self.is_audited

    @property
    def has_dhcp(self) -> bool:
        """Whether the LAN's DHCP server gives the addresses."""
        return not self.ranges


def parse_wanted(
    name: str,
    *,
    subnets: Sequence[str] = (),
    gateways: Sequence[str] = (),
    ranges: Sequence[str] = (),
    parent: str | None = None,
    dhcp: bool = False,
    no_masquerade: bool = False,
    isolated: bool = False,
    mtu: int | None = None,
    limits: bool = False,
    may_overlap: bool = False,
    allow: Sequence[str] = (),
    audit: bool = False,
) -> WantedNetwork:
    """Return the network that the options of `network create` describe; see their help, and `WantedNetwork`.

    Raises:
        BadOption: A value is invalid, or two options exclude each other.
    """
    _check_name(name, parent)
    _refuse_contradictions(
        has_addresses=bool(subnets or gateways or ranges),
        has_gateway=bool(gateways),
        parent=parent,
        dhcp=dhcp,
        no_masquerade=no_masquerade,
        isolated=isolated,
        guard="--allow" if allow else "--audit" if audit else "",
    )
    if not dhcp and not subnets:
        raise BadOption("--subnet", "is missing; give the containers' addresses, such as --subnet 10.22.0.0/16")
    chosen = [whole_range(subnet) for subnet in _only_one_each([_parse_subnet(text) for text in subnets])]
    chosen = _with_gateways(chosen, gateways)
    chosen = _with_ranges(chosen, ranges)
    _check_mtu(mtu, {found.subnet.version for found in chosen})
    return WantedNetwork(
        name=name,
        ranges=tuple(chosen),
        parent=parent,
        is_masqueraded=parent is None and not (no_masquerade or isolated),
        is_isolated=isolated,
        mtu=mtu,
        has_limits=limits,
        may_overlap=may_overlap,
        allow=tuple(allow),
        is_audited=audit,
    )


def whole_range(subnet: _Subnet, gateway: _Address | None = None) -> AddressRange:
    """Return the range of all addresses of a subnet; its gateway is the first of them unless it is given."""
    last = subnet[-2] if subnet.version == _IPV4 else subnet[-1]
    return AddressRange(subnet=subnet, first=subnet[1], last=last, gateway=gateway or subnet[1])


def _check_name(name: str, parent: str | None) -> None:
    try:
        check_network_name(name)
    except InvalidParameter as exc:
        raise BadOption("NAME", str(exc)) from exc
    if len(name) > _NAME_CHARACTERS:
        raise BadOption(
            "NAME",
            f"has {len(name)} characters; {_NAME_CHARACTERS} are possible, because the list's file is NAME.conflist",
        )
    try:
        if parent is not None:
            check_ifname(parent)
    except InvalidParameter as exc:
        raise BadOption("--parent", str(exc)) from exc


def _refuse_contradictions(
    *,
    has_addresses: bool,
    has_gateway: bool,
    parent: str | None,
    dhcp: bool,
    no_masquerade: bool,
    isolated: bool,
    guard: str,
) -> None:
    if guard and (parent is not None or dhcp):
        raise BadOption(guard, "is for bridges: what containers send on a --parent does not pass the host's rules")
    if guard and isolated:
        raise BadOption(
            guard, "excludes --isolated, with which containers reach nothing outside; leave one of them out"
        )
    if parent is None and dhcp:
        raise BadOption("--dhcp", "needs the host's link to the LAN of the DHCP server; add --parent LINK")
    if parent is not None and no_masquerade:
        raise BadOption("--no-masquerade", "is for bridges; containers on a --parent are not masqueraded, leave it out")
    if dhcp and has_addresses:
        raise BadOption("--dhcp", "takes all addresses from the DHCP server; leave out --subnet, --gateway and --range")
    if dhcp and isolated:
        raise BadOption("--isolated", "excludes --dhcp, whose server is outside; give a --subnet instead")
    if isolated and has_gateway:
        raise BadOption("--gateway", "is not used with --isolated; leave one of them out")


def _parse_subnet(text: str) -> _Subnet:
    if "/" not in text:
        raise BadOption("--subnet", f"{text!r} has no prefix length; write it like 10.22.0.0/16")
    try:
        subnet = ip_network(text, strict=False)
    except ValueError as exc:
        raise BadOption("--subnet", f"{text!r} is not a subnet; write it like 10.22.0.0/16 or fd22::/64") from exc
    if str(subnet.network_address) != str(ip_address(text.partition("/")[0])):
        raise BadOption("--subnet", f"{text} is an address in a subnet; did you mean {subnet}?")
    longest = _LONGEST[subnet.version]
    if subnet.prefixlen > longest:
        raise BadOption("--subnet", f"{subnet} is too small for a gateway and containers; use /{longest} or larger")
    for unusable, what in _UNUSABLE.items():
        if unusable.version == subnet.version and unusable.overlaps(subnet):
            raise BadOption(
                "--subnet", f"{subnet}: addresses in {unusable} {what}; choose others, such as 10.22.0.0/16"
            )
    return subnet


def _only_one_each(subnets: Sequence[_Subnet]) -> Sequence[_Subnet]:
    """Return subnets, IPv4 first, of which no two have the same family."""
    found = sorted(subnets, key=lambda subnet: subnet.version)
    for one, other in pairwise(found):
        if one.version == other.version:
            raise BadOption(
                "--subnet", f"{one} and {other} are both IPv{one.version}; a network has one subnet of each family"
            )
    return found


def _with_gateways(chosen: Sequence[AddressRange], texts: Sequence[str]) -> list[AddressRange]:
    given: dict[int, _Address] = {}
    for text in texts:
        try:
            gateway = _parse_address(text)
        except ValueError as exc:
            raise BadOption("--gateway", f"{text!r} is not an address") from exc
        whole = _range_of(gateway, chosen, "--gateway", text)
        if not whole.contains(gateway):
            raise BadOption("--gateway", f"{gateway} stands for all of {whole.subnet}; choose another address in it")
        if gateway.version in given:
            raise BadOption(
                "--gateway", f"{given[gateway.version]} and {gateway} are in the same subnet; leave one out"
            )
        given[gateway.version] = gateway
    return [whole_range(one.subnet, given.get(one.subnet.version)) for one in chosen]


def _with_ranges(chosen: Sequence[AddressRange], texts: Sequence[str]) -> list[AddressRange]:
    given: dict[int, AddressRange] = {}
    for text in texts:
        found = _parse_range(text, chosen)
        if found.subnet.version in given:
            raise BadOption("--range", f"{found.subnet} has two ranges; leave one out")
        given[found.subnet.version] = found
    return [given.get(one.subnet.version, one) for one in chosen]


def _parse_range(text: str, chosen: Sequence[AddressRange]) -> AddressRange:
    try:
        if "/" in text:
            block = ip_network(text)
            first, last = block[0], block[-1]
        else:
            start, _, end = text.partition("-")
            first, last = _parse_address(start), _parse_address(end)
    except ValueError as exc:
        raise BadOption("--range", f"{text!r} is neither like 10.22.9.0/24 nor like 10.22.0.10-10.22.0.99") from exc
    whole = _range_of(first, chosen, "--range", text)
    if last not in whole.subnet:
        raise BadOption("--range", f"{last} is not in {whole.subnet}")
    if "/" in text:  # a block may begin or end with addresses that stand for the whole subnet
        first, last = max(first, whole.first), min(last, whole.last)
    found = AddressRange(subnet=whole.subnet, first=first, last=last, gateway=whole.gateway)
    if not (whole.contains(first) and whole.contains(last)):
        raise BadOption("--range", f"{text} has an address that stands for all of {whole.subnet}")
    if not found.size:
        raise BadOption("--range", f"{text} has no address for a container")
    return found


def _parse_address(text: str) -> _Address:
    """Return an address; one with a zone (`fe80::1%eth0`) is none that a list can have."""
    if "%" in text:
        raise ValueError(text)
    return ip_address(text)


def _range_of(address: _Address, chosen: Sequence[AddressRange], option: str, text: str) -> AddressRange:
    for one in chosen:
        if address in one.subnet:
            return one
    subnets = " or ".join(str(one.subnet) for one in chosen)
    raise BadOption(option, f"{text} is not in {subnets}")


def _check_mtu(mtu: int | None, versions: set[int]) -> None:
    smallest = _SMALLEST_MTU[6 if 6 in versions else 4]  # noqa: PLR2004 - the version of IP
    if mtu is not None and not smallest <= mtu <= _LARGEST_MTU:
        why = ", the smallest of IPv6," if smallest == _SMALLEST_MTU[6] else ""
        raise BadOption("--mtu", f"{mtu} is not between {smallest}{why} and {_LARGEST_MTU}")
