# SPDX-License-Identifier: Apache-2.0
"""Results of all versions of the specification as documents: checked, and converted by a table.

Plugins start anew for each call, and need no more: the records of `results` take longer to make.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface
from typing import Final

from cni_invoker.documents.jsontypes import (
    JsonObject,
    JsonValue,
    Required,
    Shape,
    as_object,
    check_json,
    check_shape,
    copy_json,
    find_object,
    find_str,
    get_objects,
    get_str,
    get_strings,
)
from cni_invoker.documents.versions import SUPPORTED_VERSIONS, is_at_least
from cni_invoker.errors import BadResult

IpAddress = IPv4Address | IPv6Address
IpInterface = IPv4Interface | IPv6Interface

_ROUTES: Final[Shape] = [
    {"dst": Required(str), "gw": str, "mtu": int, "advmss": int, "priority": int, "table": int, "scope": int}
]
_IPS: Final[Shape] = [{"version": str, "address": Required(str), "gateway": str, "interface": int}]
_FAMILY: Final[Shape] = {"ip": Required(str), "gateway": str, "routes": _ROUTES}
_RESULT: Final[Shape] = {
    "cniVersion": str,
    "interfaces": [{"name": str, "mac": str, "sandbox": str, "mtu": int, "socketPath": str, "pciID": str}],
    "ips": _IPS,
    "ip": _IPS,
    "routes": _ROUTES,
    "dns": {"nameservers": [str], "domain": str, "search": [str], "options": [str]},
    "ip4": _FAMILY,
    "ip6": _FAMILY,
}
"""CNI SPEC §5 "ADD Success", of any version: `ip4` and `ip6` up to 0.2.0, later `ips` (or `ip`) and `routes`."""
_RECENT: Final = 1024  # addresses of gateways, routes and prefixes recur
_MAPPED: Final = 96
"""The length of the prefix `::ffff:0:0/96` of IPv4 addresses that are written as IPv6."""
_CIDR: Final = re.compile(r"[0-9a-fA-F:.]+/[0-9]{1,3}")


def check_result(document: JsonValue, cni_version: str) -> JsonObject:
    """Return a checked copy of a result, with `cniVersion`.

    Args:
        document: The result; `null` is an empty result.
        cni_version: Its version if it has no `cniVersion`.

    Raises:
        BadResult: The document is not a result, or its version is unknown.
    """
    try:
        check_json(document)
        found = as_object({} if document is None else document, "the document")
        check_shape(found, _RESULT)
        version = find_str(found, "cniVersion") or cni_version or "0.1.0"
        if version not in SUPPORTED_VERSIONS:
            raise BadResult(f'unsupported CNI result version "{version}"')
        for address, item in assignments(found, version):
            parse_cidr(address)
            parse_address(find_str(item, "gateway"))
        for route in routes(found, version):
            parse_cidr(get_str(route, "dst"))
            parse_address(find_str(route, "gw"))
        _check_dns(found)
    except ValueError as exc:
        raise BadResult(str(exc)) from exc
    return {**copy_json(found), "cniVersion": version}


def _check_dns(found: JsonObject) -> None:
    """Raise ValueError if a value for resolv.conf would make a line of its own there."""
    dns = find_object(found, "dns") or {}
    for key in ("nameservers", "domain", "search", "options"):
        value = dns.get(key) or ()
        for one in (value,) if isinstance(value, str) else get_strings(dns, key):
            if not one.isprintable():
                raise ValueError(f"dns.{key}: {one!r:.100} has a line break or another control character")


def assignments(found: JsonObject, version: str) -> Iterable[tuple[str, JsonObject]]:
    """Return the addresses of a result, in order, each with the object that has its gateway and interface."""
    if not is_at_least(version, "0.3.0"):
        return [(get_str(family, "ip"), family) for family in _families(found)]
    # The text of 0.3.0 calls the key `ip`, but most plugins wrote `ips`; 0.3.1 corrected the text.
    key = "ip" if version == "0.3.0" and "ips" not in found else "ips"
    return [(get_str(item, "address"), item) for item in get_objects(found, key)]


def routes(found: JsonObject, version: str) -> Iterable[JsonObject]:
    """Return the routes of a result, in order."""
    places = [found] if is_at_least(version, "0.3.0") else _families(found)
    return [route for place in places for route in get_objects(place, "routes")]


def _families(flat: JsonObject) -> list[JsonObject]:
    return [family for version in _FAMILIES if (family := find_object(flat, f"ip{version}"))]


@lru_cache(maxsize=_RECENT)
def parse_cidr(text: str) -> IpInterface:
    """Parse an address with the length of its prefix, or raise ValueError.

    Python also accepts an address without a prefix or with a netmask; CNI allows neither.
    """
    if _CIDR.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not an address with the length of its prefix, such as 10.1.0.9/24")
    found = ip_interface(text)
    if isinstance(found, IPv6Interface) and (mapped := found.ip.ipv4_mapped) and found.network.prefixlen >= _MAPPED:
        return IPv4Interface((mapped, found.network.prefixlen - _MAPPED))  # as in Go
    return found


@lru_cache(maxsize=_RECENT)
def parse_address(text: str | None) -> IpAddress | None:
    """Parse an address, or raise ValueError; an empty one is None."""
    if not text:
        return None
    found = ip_address(text)
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


_FORMS: Final = {"0.1.0": 0, "0.2.0": 0, "0.3.0": 1, "0.3.1": 1, "0.4.0": 1, "1.0.0": 2, "1.1.0": 2}
"""The form of each version: 0 flat, with `ip4` and `ip6`; 1 lists; 2 plain lists, whose addresses have no version."""

_FAMILIES: Final = ("4", "6")
"""The `version` of an address in lists; in the flat form its key is `ip4` or `ip6`."""


def convert_result(document: JsonObject, version: str) -> JsonObject:
    """Return a result, which `check_result` has returned, converted to a version.

    Raises:
        BadResult: A version is unknown, an address is invalid, or there is none, which 0.2.0 requires.
    """
    own = get_str(document, "cniVersion")
    for wanted in (own, version):
        if wanted not in _FORMS:
            raise BadResult(f'unsupported CNI result version "{wanted}"')
    if own == version:
        return document
    if own == "0.3.0" and "ips" not in document:
        document = {"ips" if key == "ip" else key: value for key, value in document.items()}
    first, last = _FORMS[own], _FORMS[version]
    for step in _UP[first:last] or reversed(_DOWN[last:first]):
        document = step(document)
    return {**document, "cniVersion": version}


def _flat_to_lists(flat: JsonObject) -> JsonObject:
    ips: list[JsonValue] = []
    routes: list[JsonValue] = []
    for ip_version in _FAMILIES:
        family = find_object(flat, f"ip{ip_version}")
        if family:
            gateway = {"gateway": family["gateway"]} if family.get("gateway") else {}
            ips.append({"version": ip_version, "address": get_str(family, "ip"), **gateway})
            routes.extend(get_objects(family, "routes"))
    return {**_without(flat, "ip4", "ip6"), "ips": ips, **({"routes": routes} if routes else {})}


def _lists_to_flat(lists: JsonObject) -> JsonObject:
    families: dict[str, JsonObject] = {}
    for ip_version in _FAMILIES:
        ip = next((ip for ip in get_objects(lists, "ips") if _ip_version(get_str(ip, "address")) == ip_version), None)
        if ip is None:
            continue
        gateway = {"gateway": ip["gateway"]} if ip.get("gateway") else {}
        routes: list[JsonValue] = [
            {name: route[name] for name in ("dst", "gw") if route.get(name)}
            for route in get_objects(lists, "routes")
            if _ip_version(get_str(route, "dst")) == ip_version
        ]
        families[f"ip{ip_version}"] = {
            "ip": get_str(ip, "address"),
            **gateway,
            **({"routes": routes} if routes else {}),
        }
    if not families:
        raise BadResult("cannot convert: no valid IP addresses")
    return {**_without(lists, "interfaces", "ips", "routes"), **families}


def _plain_to_lists(plain: JsonObject) -> JsonObject:
    lists = _each(plain, "ips", lambda ip: {**ip, "version": _ip_version(get_str(ip, "address"))})
    return _each(lists, "interfaces", lambda interface: _without(interface, "mtu", "socketPath", "pciID"))


_UP: Final = (_flat_to_lists, lambda lists: _each(lists, "ips", lambda ip: _without(ip, "version")))
_DOWN: Final = (_lists_to_flat, _plain_to_lists)
"""The steps between neighbouring forms."""


def _each(document: JsonObject, key: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    return {**document, key: [change(item) for item in get_objects(document, key)]} if document.get(key) else document


def _without(document: JsonObject, *keys: str) -> JsonObject:
    return {key: value for key, value in document.items() if key not in keys}


def _ip_version(address: str) -> str:
    try:
        return str(parse_cidr(address).version)
    except ValueError as exc:
        raise BadResult(str(exc)) from exc
