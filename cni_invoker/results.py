# SPDX-License-Identifier: Apache-2.0
"""Results of all versions of the specification: parsed into a typed record, and converted by a table; pure.

The original document is authoritative: it is stored, and the next plugin, CHECK and DEL receive it as `prevResult`.


"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
)
from typing import Final, Self

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    check_json,
    copy_json,
    find_int,
    find_object,
    find_str,
    get_objects,
    get_str,
    get_strings,
    parse_json,
)
from cni_invoker.documents.schema import load_validator
from cni_invoker.errors import BadResult
from cni_invoker.versions import SUPPORTED_VERSIONS, is_at_least

__all__ = ["Dns", "Interface", "IpAssignment", "Route"]

IpAddress = IPv4Address | IPv6Address
IpInterface = IPv4Interface | IPv6Interface
IpNetwork = IPv4Network | IPv6Network

_check_result: Final = load_validator("result")  # now, because later there may be no descriptor to read it with
_RECENT: Final = 1024
"""How many addresses are remembered: those of gateways, routes and prefixes recur."""
_MAPPED: Final = 96
"""The length of the prefix `::ffff:0:0/96` of IPv4 addresses that are written as IPv6."""
_CIDR: Final = re.compile(r"[0-9a-fA-F:.]+/[0-9]{1,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A link that plugins created or use.

    Attributes:
        name: Its name.
        mac: Its hardware address, empty if unknown.
        sandbox: Path of its namespace, empty for the host's.
        mtu: Its MTU in bytes, None if unknown.
        socket_path: Path of its socket, empty if it has none.
        pci_id: Its PCI address, empty if it has none.
    """

    name: str
    mac: str
    sandbox: str
    mtu: int | None
    socket_path: str
    pci_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IpAssignment:
    """An address that was assigned to an interface.

    Attributes:
        address: The address with its prefix length.
        gateway: Its default gateway, None if there is none.
        interface: Index of the interface in the result's `interfaces`, None if the plugin did not say.
    """

    address: IpInterface
    gateway: IpAddress | None
    interface: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route inside the container, with the kernel's numbers; None lets the kernel choose.

    Attributes:
        dst: Its destination.
        gw: The next hop, None for the gateway of the address or for no next hop.
        mtu: Largest packet on the path, in bytes.
        advmss: Largest TCP segment to announce, in bytes.
        priority: Its metric; the lowest is preferred.
        table: The routing table.
        scope: Its scope, e.g. 253 for a destination on the link.
    """

    dst: IpNetwork
    gw: IpAddress | None
    mtu: int | None
    advmss: int | None
    priority: int | None
    table: int | None
    scope: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """The configuration of the container's resolver."""

    nameservers: tuple[str, ...]
    domain: str
    search: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of ADD, CNI SPEC §5 "ADD Success".

    Attributes:
        cni_version: The version of its document.
        interfaces: The links, in order.
        ips: The addresses, in order; up to 0.2.0 one per family, IPv4 first.
        routes: The routes, in order.
        dns: The resolver's configuration.
    """

    cni_version: str
    interfaces: tuple[Interface, ...]
    ips: tuple[IpAssignment, ...]
    routes: tuple[Route, ...]
    dns: Dns
    _document: JsonObject = field(hash=False, repr=False)

    @property
    def document(self) -> JsonObject:
        """The whole result as the plugin printed it, with `cniVersion` filled in; each time a copy.

        `from_document` parses it into an equal result.
        """
        return copy_json(self._document)

    @classmethod
    def from_document(cls, document: JsonValue, *, cni_version: str = "") -> Self:
        """Parse a result that a plugin printed or that was stored.

        Args:
            document: The result; `null` is an empty result.
            cni_version: Its version if it has no `cniVersion`.

        Raises:
            BadResult: The document is not a result, or its version is unknown.
        """
        try:
            check_json(document)
            found = _check_result({} if document is None else document)
            version = find_str(found, "cniVersion") or cni_version or "0.1.0"
            if version not in SUPPORTED_VERSIONS:
                raise BadResult(f'unsupported CNI result version "{version}"')
            interfaces = tuple(_interface(item) for item in get_objects(found, "interfaces"))
            ips, routes = _addressing(found, version, len(interfaces))
            return cls(
                cni_version=version,
                interfaces=interfaces,
                ips=ips,
                routes=routes,
                dns=_dns(find_object(found, "dns") or {}),
                _document={**copy_json(found), "cniVersion": version},
            )
        except ValueError as exc:
            raise BadResult(str(exc)) from exc

    def converted(self, version: str) -> Self:
        """Return the result converted to another version, possibly with losses (see `convert_result`).

        Raises:
            BadResult: It cannot be converted.
        """
        return self if version == self.cni_version else self.from_document(convert_result(self._document, version))

    def addresses_of(self, ifname: str) -> tuple[IpInterface, ...]:
        """Return the addresses of the container's interface `ifname`, in order.

        An address without an interface index belongs to the interface of the attachment, so it is always included.
        """
        return tuple(
            ip.address for ip in self.ips if ip.interface is None or self.interfaces[ip.interface].name == ifname
        )


def parse_result(stdout: bytes, cni_version: str) -> Result:
    """Parse the result that a plugin printed for ADD.

    Args:
        stdout: Its whole standard output.
        cni_version: The version of the request.

    Raises:
        BadResult: It is not a result.
    """
    if not stdout.strip():
        raise BadResult("plugin returned no result")
    try:
        document = parse_json(stdout)
    except JsonError as exc:
        raise BadResult(str(exc)) from exc
    if isinstance(document, dict) and "code" in document and "msg" in document:
        raise BadResult(f"it ended well, but printed an error: code {document['code']}: {document['msg']}")
    return Result.from_document(document, cni_version=cni_version)


def _addressing(found: JsonObject, version: str, interfaces: int) -> tuple[tuple[IpAssignment, ...], tuple[Route, ...]]:
    if is_at_least(version, "0.3.0"):
        # The text of 0.3.0 calls the key `ip`, but most plugins wrote `ips`; 0.3.1 corrected the text.
        key = "ip" if version == "0.3.0" and "ips" not in found else "ips"
        ips = tuple(_ip(item, get_str(item, "address"), interfaces) for item in get_objects(found, key))
        return ips, _routes(found)
    families = [family for key in ("ip4", "ip6") if (family := find_object(found, key))]
    return (
        tuple(_ip(family, get_str(family, "ip"), interfaces) for family in families),
        tuple(route for family in families for route in _routes(family)),
    )


def _interface(item: JsonObject) -> Interface:
    return Interface(
        name=find_str(item, "name") or "",
        mac=find_str(item, "mac") or "",
        sandbox=find_str(item, "sandbox") or "",
        mtu=find_int(item, "mtu"),
        socket_path=find_str(item, "socketPath") or "",
        pci_id=find_str(item, "pciID") or "",
    )


def _ip(item: JsonObject, address: str, interfaces: int) -> IpAssignment:
    index = find_int(item, "interface")
    return IpAssignment(
        address=_cidr(address),
        gateway=_address(find_str(item, "gateway")),
        # Some plugins print -1, or an index into a list that they omit.
        interface=index if index is not None and 0 <= index < interfaces else None,
    )


def _routes(found: JsonObject) -> tuple[Route, ...]:
    return tuple(
        Route(
            dst=_cidr(get_str(item, "dst")).network,
            gw=_address(find_str(item, "gw")),
            mtu=find_int(item, "mtu"),
            advmss=find_int(item, "advmss"),
            priority=find_int(item, "priority"),
            table=find_int(item, "table"),
            scope=find_int(item, "scope"),
        )
        for item in get_objects(found, "routes")
    )


def _dns(dns: JsonObject) -> Dns:
    return Dns(
        nameservers=get_strings(dns, "nameservers"),
        domain=find_str(dns, "domain") or "",
        search=get_strings(dns, "search"),
        options=get_strings(dns, "options"),
    )


@lru_cache(maxsize=_RECENT)
def _cidr(text: str) -> IpInterface:
    # Python also accepts an address without a prefix or with a netmask; CNI allows neither.
    if _CIDR.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not an address with the length of its prefix, such as 10.1.0.9/24")
    found = ip_interface(text)
    if isinstance(found, IPv6Interface) and (mapped := found.ip.ipv4_mapped) and found.network.prefixlen >= _MAPPED:
        return IPv4Interface((mapped, found.network.prefixlen - _MAPPED))  # as in Go
    return found


def _address(text: str | None) -> IpAddress | None:
    return _ip_address(text) if text else None


@lru_cache(maxsize=_RECENT)
def _ip_address(text: str) -> IpAddress:
    found = ip_address(text)
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


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

_MAPPED_TEXT: Final = re.compile(r"::ffff:(?:[0-9.]+|[0-9a-f]+:[0-9a-f]+)/([0-9]+)", re.IGNORECASE)
"""An IPv4 address that is written as IPv6, e.g. `::ffff:10.1.0.9/120`."""

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
    mapped = _MAPPED_TEXT.fullmatch(address)
    return "6" if ":" in address and (mapped is None or int(mapped[1]) < _MAPPED) else "4"
