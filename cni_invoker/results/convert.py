# SPDX-License-Identifier: Apache-2.0
"""Converts results between all versions of the specification, by a table; pure.

There are three forms; the versions within a form have the same layout:

```
FLAT   0.1.0 0.2.0        ip4 and ip6, one address each, with the routes of their family
LISTS  0.3.0 0.3.1 0.4.0  interfaces, ips with a `version` key, routes
PLAIN  1.0.0 1.1.0        ips without `version`; interfaces may have an MTU, a socket and a PCI address
```

Converting to an older form loses what it cannot express. From PLAIN to LISTS these are the new keys of interfaces; from
LISTS to FLAT the interfaces, all but the first address of each family, and all keys of a route except destination and
next hop. Everything else is kept, including unknown keys (libcni's `pkg/types` drops those).
"""

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, find_object, get_objects, get_str
from cni_invoker.errors import BadResult


class _Form(Enum):
    FLAT = auto()
    LISTS = auto()
    PLAIN = auto()


_FORMS: Final = {
    "0.1.0": _Form.FLAT,
    "0.2.0": _Form.FLAT,
    "0.3.0": _Form.LISTS,
    "0.3.1": _Form.LISTS,
    "0.4.0": _Form.LISTS,
    "1.0.0": _Form.PLAIN,
    "1.1.0": _Form.PLAIN,
}

_FAMILIES: Final = (("ip4", "4"), ("ip6", "6"))
"""The keys of FLAT, in order, each with its `version` in LISTS."""

_MAPPED: Final = re.compile(r"::ffff:(?:[0-9.]+|[0-9a-f]+:[0-9a-f]+)/([0-9]+)", re.IGNORECASE)
"""An IPv4 address that is written as IPv6, e.g. `::ffff:10.1.0.9/120`."""

_MAPPED_BITS: Final = 96

_SINCE_PLAIN: Final = frozenset({"mtu", "socketPath", "pciID"})


def convert_result(document: JsonObject, version: str) -> JsonObject:
    """Return `document` converted to `version`.

    Args:
        document: A result that matches the schema `cni/result` and has `cniVersion`.
        version: The target version.

    Raises:
        BadResult: One of the versions is unknown, or the result has no address, which 0.2.0 requires.
    """
    own = get_str(document, "cniVersion")
    for wanted in (own, version):
        if wanted not in _FORMS:
            raise BadResult(f'unsupported CNI result version "{wanted}"')
    if own == version:
        return document
    # The text of 0.3.0 calls the key `ip`, but most plugins wrote `ips`; 0.3.1 corrected the text.
    if own == "0.3.0" and "ips" not in document:
        document = {"ips" if key == "ip" else key: value for key, value in document.items()}
    for step in _STEPS[_FORMS[own], _FORMS[version]]:
        document = step(document)
    return {**document, "cniVersion": version}


def _flat_to_lists(flat: JsonObject) -> JsonObject:
    ips: list[JsonValue] = []
    routes: list[JsonValue] = []
    for key, ip_version in _FAMILIES:
        family = find_object(flat, key)
        if family:
            gateway = {"gateway": family["gateway"]} if family.get("gateway") else {}
            ips.append({"version": ip_version, "address": get_str(family, "ip"), **gateway})
            routes.extend(get_objects(family, "routes"))
    return {**_without(flat, "ip4", "ip6"), "ips": ips, **({"routes": routes} if routes else {})}


def _lists_to_flat(lists: JsonObject) -> JsonObject:
    families: dict[str, JsonObject] = {}
    for key, ip_version in _FAMILIES:
        ip = next((ip for ip in get_objects(lists, "ips") if _ip_version(get_str(ip, "address")) == ip_version), None)
        if ip is None:
            continue
        gateway = {"gateway": ip["gateway"]} if ip.get("gateway") else {}
        routes: list[JsonValue] = [
            {name: route[name] for name in ("dst", "gw") if route.get(name)}
            for route in get_objects(lists, "routes")
            if _ip_version(get_str(route, "dst")) == ip_version
        ]
        families[key] = {"ip": get_str(ip, "address"), **gateway, **({"routes": routes} if routes else {})}
    if not families:
        raise BadResult("cannot convert: no valid IP addresses")
    return {**_without(lists, "interfaces", "ips", "routes"), **families}


def _lists_to_plain(lists: JsonObject) -> JsonObject:
    return _each(lists, "ips", lambda ip: _without(ip, "version"))


def _plain_to_lists(plain: JsonObject) -> JsonObject:
    lists = _each(plain, "ips", lambda ip: {**ip, "version": _ip_version(get_str(ip, "address"))})
    return _each(lists, "interfaces", lambda interface: _without(interface, *_SINCE_PLAIN))


_STEPS: Final[dict[tuple[_Form, _Form], tuple[Callable[[JsonObject], JsonObject], ...]]] = {
    (_Form.FLAT, _Form.FLAT): (),
    (_Form.FLAT, _Form.LISTS): (_flat_to_lists,),
    (_Form.FLAT, _Form.PLAIN): (_flat_to_lists, _lists_to_plain),
    (_Form.LISTS, _Form.FLAT): (_lists_to_flat,),
    (_Form.LISTS, _Form.LISTS): (),
    (_Form.LISTS, _Form.PLAIN): (_lists_to_plain,),
    (_Form.PLAIN, _Form.FLAT): (_plain_to_lists, _lists_to_flat),
    (_Form.PLAIN, _Form.LISTS): (_plain_to_lists,),
    (_Form.PLAIN, _Form.PLAIN): (),
}


def _each(document: JsonObject, key: str, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Return the document with every object of the array under `key` changed."""
    return {**document, key: [change(item) for item in get_objects(document, key)]} if document.get(key) else document


def _without(document: JsonObject, *keys: str) -> JsonObject:
    return {key: value for key, value in document.items() if key not in keys}


def _ip_version(address: str) -> str:
    mapped = _MAPPED.fullmatch(address)
    return "6" if ":" in address and (mapped is None or int(mapped[1]) < _MAPPED_BITS) else "4"
