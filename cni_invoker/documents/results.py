# SPDX-License-Identifier: Apache-2.0
"""Results of all versions of the specification: parsed into a typed record.

The original document is authoritative: it is stored, and the next plugin, CHECK and DEL receive it as `prevResult`.
"""

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Self

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    copy_json,
    find_int,
    find_object,
    find_str,
    get_objects,
    get_str,
    get_strings,
    parse_json,
)
from cni_invoker.documents.result_documents import (
    IpAddress,
    IpInterface,
    assignments,
    check_result,
    convert_result,
    parse_address,
    parse_cidr,
    routes,
)
from cni_invoker.errors import BadResult

IpNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A link that plugins created or use. What is unknown is empty; so is the `sandbox` of a link of the host."""

    name: str
    mac: str
    sandbox: str
    mtu: int | None
    socket_path: str
    pci_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IpAssignment:
    """An address with its default gateway; `interface` is an index of the result's `interfaces`, None if unknown."""

    address: IpInterface
    gateway: IpAddress | None
    interface: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route inside the container, with the kernel's numbers; None lets the kernel choose.

    Without `gw` it leads through the gateway of the address, or to a destination on the link.
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

    All parts are in the plugin's order; up to 0.2.0 there is one address per family, IPv4 first.
    """

    cni_version: str
    interfaces: tuple[Interface, ...]
    ips: tuple[IpAssignment, ...]
    routes: tuple[Route, ...]
    dns: Dns
    _document: JsonObject = field(hash=False, repr=False)

    @property
    def document(self) -> JsonObject:
        """The whole result as the plugin printed it, with `cniVersion` filled in; each time a copy."""
        return copy_json(self._document)

    @classmethod
    def from_document(cls, document: JsonValue, *, cni_version: str = "") -> Self:
        """Parse a result that a plugin printed or that was stored.

        Arguments and errors are those of `check_result`.
        """
        found = check_result(document, cni_version)
        version = get_str(found, "cniVersion")
        interfaces = tuple(_interface(item) for item in get_objects(found, "interfaces"))
        return cls(
            cni_version=version,
            interfaces=interfaces,
            ips=tuple(_ip(address, item, len(interfaces)) for address, item in assignments(found, version)),
            routes=tuple(_route(item) for item in routes(found, version)),
            dns=_dns(find_object(found, "dns") or {}),
            _document=found,
        )

    def converted(self, version: str) -> Self:
        """Return the result converted to another version, possibly with losses, as `convert_result` does."""
        return self if version == self.cni_version else self.from_document(convert_result(self._document, version))

    def addresses_of(self, ifname: str) -> tuple[IpInterface, ...]:
        """Return the addresses of the container's interface `ifname`, in order.

        An address without an interface index belongs to the interface of the attachment, so it is always included.
        """
        return tuple(
            ip.address for ip in self.ips if ip.interface is None or self.interfaces[ip.interface].name == ifname
        )


def parse_result(stdout: bytes, cni_version: str, *, entries: int | None = None) -> Result:
    """Parse the result that a plugin printed for ADD of `cni_version`, or raise `BadResult`.

    It may have so many `entries`: links, addresses and routes together; None: any number.
    """
    if not stdout.strip():
        raise BadResult("plugin returned no result")
    try:
        document = parse_json(stdout)
    except JsonError as exc:
        raise BadResult(str(exc)) from exc
    if isinstance(document, dict) and "code" in document and "msg" in document:
        raise BadResult(f"it ended well, but printed an error: code {document['code']}: {document['msg']}")
    result = Result.from_document(document, cni_version=cni_version)
    counts = {"links": len(result.interfaces), "addresses": len(result.ips), "routes": len(result.routes)}
    if entries is not None and sum(counts.values()) > entries:
        found = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise BadResult(f"{found}: a result may have {entries} of them together")
    return result


def _interface(item: JsonObject) -> Interface:
    return Interface(
        name=find_str(item, "name") or "",
        mac=find_str(item, "mac") or "",
        sandbox=find_str(item, "sandbox") or "",
        mtu=find_int(item, "mtu"),
        socket_path=find_str(item, "socketPath") or "",
        pci_id=find_str(item, "pciID") or "",
    )


def _ip(address: str, item: JsonObject, interfaces: int) -> IpAssignment:
    index = find_int(item, "interface")
    return IpAssignment(
        address=parse_cidr(address),
        gateway=parse_address(find_str(item, "gateway")),
        # Some plugins print -1, or an index into a list that they omit.
        interface=index if index is not None and 0 <= index < interfaces else None,
    )


def _route(item: JsonObject) -> Route:
    return Route(
        dst=parse_cidr(get_str(item, "dst")).network,
        gw=parse_address(find_str(item, "gw")),
        mtu=find_int(item, "mtu"),
        advmss=find_int(item, "advmss"),
        priority=find_int(item, "priority"),
        table=find_int(item, "table"),
        scope=find_int(item, "scope"),
    )


def _dns(dns: JsonObject) -> Dns:
    return Dns(
        nameservers=get_strings(dns, "nameservers"),
        domain=find_str(dns, "domain") or "",
        search=get_strings(dns, "search"),
        options=get_strings(dns, "options"),
    )
