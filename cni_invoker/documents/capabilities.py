# SPDX-License-Identifier: Apache-2.0
"""Typed capability arguments, as CNI's CONVENTIONS.md defines them.

A capability argument reaches the plugins that declare it, as `runtimeConfig`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface
from re import IGNORECASE, fullmatch
from typing import Final

from cni_invoker.documents.checks import require_type
from cni_invoker.documents.jsontypes import JsonObject, JsonValue
from cni_invoker.errors import ErrorCode, InvalidParameter

_PORTS: Final = range(1, 65536)
_PROTOCOLS: Final = frozenset({"tcp", "udp", "sctp"})
_MAC: Final = r"[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}"
_GUID: Final = r"(?:[0-9a-f]{2}:){7}[0-9a-f]{2}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the host that leads to a port of the container.

    Attributes:
        host_port: The host's port, 1 to 65535.
        container_port: The container's port.
        protocol: `tcp`, `udp` or `sctp`.
        host_ip: The host's address on which the port is open; empty for all.

    Raises:
        InvalidParameter: A value is none of these.
        TypeError: A value has another type.
    """

    host_port: int
    container_port: int
    protocol: str = "tcp"
    host_ip: str = ""

    def __post_init__(self) -> None:
        for name in ("host_port", "container_port"):
            port = require_type(getattr(self, name), int, name)
            _require(port in _PORTS, name.replace("_", " "), port, "it must be from 1 to 65535")
        _require(self.protocol in _PROTOCOLS, "protocol", self.protocol, f"it must be one of {sorted(_PROTOCOLS)}")
        if self.host_ip:
            _require(_is_address(self.host_ip), "host address", self.host_ip, "it is not an IP address")

    @property
    def document(self) -> JsonObject:
        """It as JSON."""
        ports: dict[str, JsonValue] = {"hostPort": self.host_port, "containerPort": self.container_port}
        return {**ports, "protocol": self.protocol, **({"hostIP": self.host_ip} if self.host_ip else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Limits of the traffic; 0 is no limit. A rate needs a burst.

    Attributes:
        ingress_rate: Into the container, in bits per second.
        ingress_burst: In bits.
        egress_rate: Out of the container, in bits per second.
        egress_burst: In bits.

    Raises:
        InvalidParameter: A value is negative, or a rate has no burst.
        TypeError: A value is not an integer.
    """

    ingress_rate: int = 0
    ingress_burst: int = 0
    egress_rate: int = 0
    egress_burst: int = 0

    def __post_init__(self) -> None:
        for way in ("ingress", "egress"):
            rate = require_type(getattr(self, f"{way}_rate"), int, f"{way}_rate")
            burst = require_type(getattr(self, f"{way}_burst"), int, f"{way}_burst")
            rule = "rate and burst must both be positive, or both be 0"
            _require((rate > 0) == (burst > 0) and min(rate, burst) >= 0, f"{way} bandwidth", (rate, burst), rule)

    @property
    def document(self) -> JsonObject:
        """It as JSON."""
        values = {
            "ingressRate": self.ingress_rate,
            "ingressBurst": self.ingress_burst,
            "egressRate": self.egress_rate,
            "egressBurst": self.egress_burst,
        }
        return {key: value for key, value in values.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capability arguments of one attachment; what is empty is not passed.

    Attributes:
        port_mappings: Ports of the host that lead to the container.
        bandwidth: Limits of its traffic.
        ips: Addresses that it should get, with or without prefix length.
        mac: Its hardware address.
        dns_servers: Addresses of name servers.
        dns_searches: Domains in which names are searched.
        dns_options: Options of the resolver.
        aliases: Further names of the container.
        infiniband_guid: Its InfiniBand GUID.
        device_id: A device of the host, e.g. a PCI address.
        cgroup_path: The container's cgroup.
        others: Further arguments by capability; they take precedence.

    Raises:
        InvalidParameter: A value cannot be what it should be.
        TypeError: A value has another type.
    """

    port_mappings: Sequence[PortMapping] = ()
    bandwidth: Bandwidth | None = None
    ips: Sequence[str] = ()
    mac: str = ""
    dns_servers: Sequence[str] = ()
    dns_searches: Sequence[str] = ()
    dns_options: Sequence[str] = ()
    aliases: Sequence[str] = ()
    infiniband_guid: str = ""
    device_id: str = ""
    cgroup_path: str = ""
    others: JsonObject = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        texts = ("ips", "dns_servers", "dns_searches", "dns_options", "aliases")
        for name, kind in (("port_mappings", PortMapping), *((name, str) for name in texts)):
            values = _several(getattr(self, name), name)
            for value in values:
                require_type(value, kind, f"each of {name}")
            object.__setattr__(self, name, values)  # a list could be changed later
        if self.bandwidth is not None:
            require_type(self.bandwidth, Bandwidth, "bandwidth")
        for ip in self.ips:
            _require(_is_interface(ip), "address", ip, "it is not an IP address, with or without a prefix length")
        if self.mac:
            _require(fullmatch(_MAC, self.mac, IGNORECASE) is not None, "MAC", self.mac, "it is not a hardware address")
        if self.infiniband_guid:
            is_guid = fullmatch(_GUID, self.infiniband_guid, IGNORECASE) is not None
            _require(is_guid, "InfiniBand GUID", self.infiniband_guid, "it must be of the form c2:11:22:33:44:55:66:77")

    @property
    def document(self) -> dict[str, JsonValue]:
        """The values by capability, without empty ones."""
        dns = {"servers": self.dns_servers, "searches": self.dns_searches, "options": self.dns_options}
        values: dict[str, JsonValue] = {
            "portMappings": [mapping.document for mapping in self.port_mappings],
            "bandwidth": self.bandwidth.document if self.bandwidth is not None else None,
            "ips": list(self.ips),
            "mac": self.mac,
            "dns": {key: list(value) for key, value in dns.items() if value},
            "aliases": list(self.aliases),
            "infinibandGUID": self.infiniband_guid,
            "deviceID": self.device_id,
            "cgroupPath": self.cgroup_path,
        }
        return {**{key: value for key, value in values.items() if value}, **self.others}


def _several(values: object, what: str) -> tuple[object, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a list or a tuple, not the {type(values).__name__} {values!r:.100}")
    return tuple(values)


def _require(is_right: object, what: str, value: object, rule: str) -> None:
    if not is_right:
        raise InvalidParameter(what, str(value), rule, code=ErrorCode.INVALID_ENVIRONMENT)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_interface(text: str) -> bool:
    try:
        ip_interface(text)
    except ValueError:
        return False
    return True
