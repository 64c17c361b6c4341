# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container's network from both sides: its own links and addresses, and what Docker shows of them."""

import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface

from cni_invoker.documents.jsontypes import (
    JsonObject,
    JsonValue,
    as_object,
    get_int,
    get_object,
    get_objects,
    get_str,
    parse_json,
)
from tests.lab.docker_api import call, execute
from tests.lab.errors import LabError
from tests.lab.namespaces import Namespaces

Interface = IPv4Interface | IPv6Interface
Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link in a container's network namespace, without `lo`.

    Attributes:
        name: E.g. `eth0`.
        mac: E.g. `02:42:ac:11:00:02`.
        mtu: In bytes.
        is_up: Whether it is set up.
        addresses: With prefix, in the kernel's order, without link-local ones.
    """

    name: str
    mac: str
    mtu: int
    is_up: bool
    addresses: tuple[Interface, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerEndpoint:
    """What `docker inspect` shows of a container on one network; None and empty where it shows nothing.

    Attributes:
        endpoint_id: 64 hexadecimal digits.
        mac: The address of the link.
        addresses: At most one of each family, with prefix.
        gateways: At most one of each family, without prefix.
    """

    endpoint_id: str
    mac: str
    addresses: tuple[Interface, ...]
    gateways: tuple[Address, ...]


class Container:
    """A container of the lab's Docker host, by name or ID. It has no state: each call reads anew."""

    def __init__(self, namespaces: Namespaces, name: str) -> None:
        self._namespaces = namespaces
        self.name = name

    def inspect(self) -> JsonObject:
        """Return the document of `docker inspect`.

        Raises:
            LabError: There is no such container.
        """
        return as_object(call(self._namespaces, "GET", f"/containers/{self.name}/json"), f"container {self.name}")

    def endpoint(self, network: str) -> DockerEndpoint:
        """Return what Docker shows of this container's endpoint on a network (by name)."""
        found = get_object(get_object(get_object(self.inspect(), "NetworkSettings"), "Networks"), network)
        pairs = (("IPAddress", "IPPrefixLen"), ("GlobalIPv6Address", "GlobalIPv6PrefixLen"))
        addresses = [f"{get_str(found, address)}/{get_int(found, length)}" for address, length in pairs]
        gateways = [get_str(found, key) for key in ("Gateway", "IPv6Gateway")]
        return DockerEndpoint(
            endpoint_id=get_str(found, "EndpointID"),
            mac=get_str(found, "MacAddress"),
            addresses=tuple(ip_interface(text) for text in addresses if not text.startswith("/")),
            gateways=tuple(ip_address(text) for text in gateways if text),
        )

    def exec(self, *argv: str) -> str:
        """Run one of busybox's commands in the container, as `docker exec` does, and return its stripped stdout.

        Raises:
            OSError: It is silent for longer than a minute.
            CommandFailed: Its exit status is not 0.
        """
        return execute(self._namespaces, self.name, argv, timeout_s=60.0).strip()

    def ip(self, *argv: str) -> tuple[JsonObject, ...]:
        """Run a command of iproute2 (`"addr"`, `"-6", "route"`, `"rule"`) in the container; return its JSON objects."""
        found = parse_json(self.in_network("ip", "-json", "-details", *argv).stdout.encode() or b"[]")
        return get_objects({"found": found}, "found")

    def in_network(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the lab in the container's network namespace only."""
        key = get_str(get_object(self.inspect(), "NetworkSettings"), "SandboxKey")
        if not key:
            raise LabError(f"container {self.name} does not run")
        return self._namespaces.run(["nsenter", f"--net={key}", "--", *argv])

    def links(self) -> tuple[Link, ...]:
        """Return the links in the container, without `lo`, in the kernel's order."""
        return tuple(_parse_link(item) for item in self.ip("addr") if item.get("link_type") != "loopback")

    def link(self, name: str = "eth0") -> Link:
        """Return the link of this name.

        Raises:
            LabError: It does not exist; the message names the existing ones.
        """
        links = self.links()
        for link in links:
            if link.name == name:
                return link
        raise LabError(f"container {self.name} has no link {name}, only {[link.name for link in links]}")


def _parse_link(item: JsonObject) -> Link:
    addresses = [address for address in get_objects(item, "addr_info") if address.get("protocol") != "kernel_ll"]
    flags: JsonValue = item.get("flags")
    return Link(
        name=get_str(item, "ifname"),
        mac=get_str(item, "address"),
        mtu=get_int(item, "mtu"),
        is_up=isinstance(flags, list) and "UP" in flags,
        addresses=tuple(
            ip_interface(f"{get_str(address, 'local')}/{get_int(address, 'prefixlen')}")
            for address in addresses
            if address.get("scope") != "link"
        ),
    )
