# SPDX-License-Identifier: Apache-2.0
"""An attachment: one interface of one container, and its capability arguments, as CNI's CONVENTIONS.md defines them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface
from os import fspath
from re import IGNORECASE, fullmatch
from typing import Final

from cni_invoker.documents.checks import (
    StrPath,
    check_container_id,
    check_given_argument,
    check_ifname,
    check_netns,
)
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, render_json
from cni_invoker.errors import ErrorCode, InvalidParameter

_PORTS: Final = range(1, 65536)
_PROTOCOLS: Final = frozenset({"tcp", "udp", "sctp"})
_MAC: Final = r"[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}"
_GUID: Final = r"(?:[0-9a-f]{2}:){7}[0-9a-f]{2}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AttachmentKey:
    """What identifies an attachment (CNI SPEC "CNI operations").

    Attributes:
        container_id: The container's ID.
        ifname: Name of the interface inside the container.

    Raises:
        InvalidParameter: CNI does not allow a value.
    """

    container_id: str
    ifname: str

    def __post_init__(self) -> None:
        check_container_id(self.container_id)
        check_ifname(self.ifname)


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Attachment:
    """The parameters of a container for ADD, which every later verb must receive unchanged.

    It is identified by its `key`. DEL must receive the same `args` and `capability_args` as ADD: without them `portmap`
    leaves its rules behind and reports success.

    Attributes:
        container_id: The container's ID.
        ifname: Name of the interface inside the container.
        netns: Absolute path of the container's network namespace, a string or a path; empty only for DEL.
        args: CNI_ARGS, in order, given as a mapping or as pairs, e.g. `{"IgnoreUnknown": "1", "IP": "10.1.0.9"}`. ADD
            refuses values with '=', which most plugins do not understand; other runtimes may have used them.
        capability_args: Values by capability, e.g. `{"mac": "c2:11:22:33:44:55"}`, or `Capabilities`; each plugin
            receives those that it declares.

    Raises:
        InvalidParameter: CNI does not allow a value.
    """

    container_id: str
    ifname: str
    netns: str
    args: tuple[tuple[str, str], ...] = ()
    capability_args: JsonObject = field(default_factory=dict, hash=False)

    def __init__(
        self,
        *,
        container_id: str,
        ifname: str,
        netns: StrPath,
        args: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        capability_args: "JsonObject | Capabilities | None" = None,
    ) -> None:
        values = {
            "container_id": container_id,
            "ifname": ifname,
            "netns": fspath(netns),
            "args": tuple((key, value) for key, value in (args.items() if isinstance(args, Mapping) else args)),
            "capability_args": _by_capability(capability_args or {}),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._validate()

    def _validate(self) -> None:
        check_container_id(self.container_id)
        check_ifname(self.ifname)
        check_netns(self.netns)
        for key, value in self.args:
            check_given_argument(key, value)
        try:
            render_json(self.capability_args)
        except ValueError as exc:
            values = str(self.capability_args)
            raise InvalidParameter(
                # They become part of the plugin's configuration.
                "capability arguments",
                values,
                f"they are not JSON: {exc}",
                code=ErrorCode.INVALID_CONFIGURATION,
            ) from exc

    @property
    def key(self) -> AttachmentKey:
        """Its identity."""
        return AttachmentKey(container_id=self.container_id, ifname=self.ifname)


def _by_capability(given: "JsonObject | Capabilities") -> JsonObject:
    return given if isinstance(given, Mapping) else given.document


def freeze_keys(keys: Iterable[object]) -> tuple[AttachmentKey, ...]:
    """Return the keys as a tuple, in order and without duplicates; a generator is consumed.

    Call it before deleting what is not among the keys: an object of another type would never be equal to a key.

    Raises:
        TypeError: An item is not an `AttachmentKey`.
    """
    frozen: dict[AttachmentKey, None] = {}
    for key in keys:
        if not isinstance(key, AttachmentKey):
            hint = "; that of an Attachment is its `key`" if isinstance(key, Attachment) else ""
            raise TypeError(f"each valid attachment must be given as its AttachmentKey, not as {key!r}{hint}")
        frozen[key] = None
    return tuple(frozen)


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
    """

    host_port: int
    container_port: int
    protocol: str = "tcp"
    host_ip: str = ""

    def __post_init__(self) -> None:
        for name in ("host_port", "container_port"):
            port = getattr(self, name)
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
    """

    ingress_rate: int = 0
    ingress_burst: int = 0
    egress_rate: int = 0
    egress_burst: int = 0

    def __post_init__(self) -> None:
        for way in ("ingress", "egress"):
            rate, burst = getattr(self, f"{way}_rate"), getattr(self, f"{way}_burst")
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
        for name in ("port_mappings", "ips", "dns_servers", "dns_searches", "dns_options", "aliases"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a list could be changed later
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
