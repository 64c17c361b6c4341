# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Sets of address ranges, written as for host-local, and which of their addresses are free; pure.

```
{ "ranges": [[{ "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.100", "rangeEnd": "10.1.0.199", "gateway": "10.1.0.1",
                "exclude": ["10.1.0.110", "10.1.0.128/28"] }],
             [{ "subnet": "fd00:1::/64" }]] }
```

A container gets one address of each set. `exclude` is the only key that host-local does not have.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import pairwise
from typing import Final

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    find_str,
    get_list,
    get_objects,
    get_str,
    get_strings,
)

__all__ = ["IpAddress", "RangeSet", "Span", "first_gap", "parse_ranges"]

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

_IPV4: Final = 4
_SMALLEST: Final = 2
"""Bits of the host part, at least: host-local refuses smaller subnets."""
_DRAWN: Final = 1 << 16
"""One of the first so many addresses of a set is drawn, so that IPv6 addresses stay short. All can be assigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Addresses in a row that can be assigned: a range, or a part of it between its gateway and exclusions.

    Attributes:
        first: The first address, as a number.
        last: The last one.
        prefix: Length of the subnet's prefix.
        gateway: The gateway of its range.
    """

    first: int
    last: int
    prefix: int
    gateway: IpAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSet:
    """The ranges from which a container gets one address.

    Attributes:
        text: The ranges, for errors, e.g. `10.1.0.100-10.1.0.199`.
        version: 4 or 6.
        spans: What can be assigned, in ascending order, without overlaps.
    """

    text: str
    version: int
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """The number of addresses that can be assigned."""
        return sum(span.last - span.first + 1 for span in self.spans)

    def address(self, number: int) -> IpAddress:
        """Return the address that is a number."""
        return IPv4Address(number) if self.version == _IPV4 else IPv6Address(number)

    def find_span(self, address: IpAddress) -> Span | None:
        """Return the span that has an address; None if it cannot be assigned."""
        if address.version != self.version:
            return None
        return next((span for span in self.spans if span.first <= int(address) <= span.last), None)

    def draw(self, number: int) -> IpAddress:
        """Return one of the addresses, the same for the same random number."""
        left = number % min(self.size, _DRAWN)
        for span in self.spans:
            if left <= span.last - span.first:
                return self.address(span.first + left)
            left -= span.last - span.first + 1
        raise AssertionError("a number below the size is in a span")

    def stretches(self, start: IpAddress) -> Iterator[tuple[int, int]]:
        """Yield first and last number of what can be assigned, in ascending order from an address on, and around."""
        for after in (True, False):
            for span in self.spans:
                first = max(span.first, int(start)) if after else span.first
                last = span.last if after else min(span.last, int(start) - 1)
                if first <= last:
                    yield first, last


def first_gap(first: int, taken: Iterable[int]) -> int:
    """Return the lowest number from `first` on that is not taken; `taken` is in ascending order, from `first` on."""
    for number in taken:
        if number != first:
            break
        first += 1
    return first


def parse_ranges(ipam: JsonObject, further: Sequence[JsonValue] = ()) -> tuple[RangeSet, ...]:
    """Return the sets of an IPAM section.

    Args:
        ipam: The section.
        further: Sets of the capability argument `ipRanges`, which come first.

    Raises:
        JsonError: They are invalid, there are none, or two have addresses in common.
    """
    own = [[ipam], *get_list(ipam, "ranges")] if find_str(ipam, "subnet") else get_list(ipam, "ranges")
    everywhere = _parse_exclusions(ipam)
    sets = []
    for number, documents in enumerate((*further, *own)):
        try:
            sets.append(_parse_set(get_objects({"ranges": documents}, "ranges"), everywhere))
        except JsonError as exc:
            raise JsonError(f"range set {number}: {exc}") from exc
    if not sets:
        raise JsonError("there are no ranges: the section needs `ranges` or `subnet`")
    _refuse_overlaps(sets)
    return tuple(sets)


def _parse_set(documents: Sequence[JsonObject], everywhere: Sequence[IpNetwork]) -> RangeSet:
    ranges = [_parse_range(document) for document in documents]
    versions = {subnet.version for subnet, *_ in ranges}
    if len(versions) != 1:
        raise JsonError("it is empty" if not versions else "it has ranges of IPv4 and IPv6; make them two sets")
    spans = []
    for document, (subnet, first, last, gateway) in zip(documents, ranges, strict=True):
        holes = [(int(gateway), int(gateway))] if gateway.version == subnet.version else []
        excluded = (*everywhere, *_parse_exclusions(document))
        holes += [(int(one[0]), int(one[-1])) for one in excluded if one.version == subnet.version]
        spans += [
            Span(first=begin, last=end, prefix=subnet.prefixlen, gateway=gateway)
            for begin, end in _cut(int(first), int(last), holes)
        ]
    spans.sort(key=lambda span: span.first)
    text = ",".join(f"{first}-{last}" for _, first, last, _ in ranges)
    if not spans:
        raise JsonError(f"{text} has no address that can be assigned: all are excluded, or are gateways")
    return RangeSet(text=text, version=versions.pop(), spans=tuple(spans))


def _parse_range(document: JsonObject) -> tuple[IpNetwork, IpAddress, IpAddress, IpAddress]:
    """Return subnet, first and last address, and gateway of a range, with host-local's defaults."""
    text = get_str(document, "subnet")
    try:
        subnet = ip_network(text)
    except ValueError as exc:
        raise JsonError(f"subnet {text!r}: {exc}") from exc
    if subnet.max_prefixlen - subnet.prefixlen < _SMALLEST:
        raise JsonError(f"subnet {subnet} is too small")
    found = []
    highest = subnet[-2] if subnet.version == _IPV4 else subnet[-1]
    for key, default in (("rangeStart", subnet[1]), ("rangeEnd", highest), ("gateway", subnet[1])):
        given = find_str(document, key)
        try:
            found.append(ip_address(given) if given else default)
        except ValueError as exc:
            raise JsonError(f"{key}: {exc}") from exc
        if key != "gateway" and found[-1] not in subnet:
            raise JsonError(f"{key} {given} is not in {subnet}")
    first, last, gateway = found
    if int(first) > int(last):
        raise JsonError(f"rangeStart {first} is behind rangeEnd {last}")
    return subnet, first, last, gateway


def _parse_exclusions(document: JsonObject) -> list[IpNetwork]:
    try:
        return [ip_network(text) for text in get_strings(document, "exclude")]
    except ValueError as exc:
        raise JsonError(f"exclude: {exc}") from exc


def _cut(first: int, last: int, holes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what is left from `first` to `last` without the holes."""
    for begin, end in sorted(holes):
        if end < first or begin > last:
            continue
        if begin > first:
            yield first, begin - 1
        first = end + 1
    if first <= last:
        yield first, last


def _refuse_overlaps(sets: Sequence[RangeSet]) -> None:
    for version in (4, 6):
        spans = [(span, number) for number, one in enumerate(sets) if one.version == version for span in one.spans]
        spans.sort(key=lambda item: item[0].first)
        for (lower, one), (upper, other) in pairwise(spans):
            if upper.first <= lower.last:
                where = f"range set {one} overlaps with {other}" if one != other else f"range set {one} has overlaps"
                raise JsonError(where)
