# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What netavark sends and expects (its plugin-API.md, API version 1.0.0), in CNI's terms; without effects."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Self

from cni_invoker import Attachment, JsonObject, JsonValue, NetworkConfigurationList, Result

__all__ = ["CALLER", "Container", "NotUnderstood", "Refused", "Settings", "create_network", "render_status"]

Document = dict[str, Any]
"""A JSON object of netavark, which writes it from typed records."""

CALLER: Final = "K8S_POD_NAME"
"""The CNI argument with the container's name, as podman's own CNI had it; dnsname answers with it."""

_CONFIG_DIRS: Final = "/etc/cni/net.d"
_PLUGIN_DIRS: Final = "/opt/cni/bin:/usr/local/libexec/cni:/usr/libexec/cni:/usr/local/lib/cni:/usr/lib/cni"
"""Podman's directories."""
_OPTIONS: Final = ("network", "config-dirs", "plugin-dirs")
_DECIDED_BY_LIST: Final = {
    "subnets": "--subnet, --gateway and --ip-range",
    "routes": "--route",
    "network_interface": "--interface-name",
    "network_dns_servers": "--dns",
}
"""Keys of a network that must be empty, with podman's options."""
_FLAGS_OF_LIST: Final = {"internal": "--internal", "ipv6_enabled": "--ipv6"}


class Refused(Exception):
    """What is asked for cannot be done; the message says why, and what to do."""


class NotUnderstood(Refused):
    """The input is not that of netavark's API 1.0.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a podman network.

    Attributes:
        network: The name of the CNI network, by default podman's name.
        config_dirs: Where its list is.
        plugin_dirs: Where plugins are.
    """

    network: str
    config_dirs: tuple[Path, ...]
    plugin_dirs: tuple[Path, ...]

    @classmethod
    def of_network(cls, network: Document) -> Self:
        """Return those of netavark's `network`.

        Raises:
            Refused: An option is unknown, or a directory is not absolute.
        """
        options: Document = network.get("options") or {}
        if unknown := sorted(options.keys() - set(_OPTIONS)):
            raise Refused(f"unknown option {unknown[0]!r}; the driver's options are {', '.join(_OPTIONS)}")
        return cls(
            network=options.get("network") or str(network["name"]),
            config_dirs=_directories("config-dirs", options.get("config-dirs") or _CONFIG_DIRS),
            plugin_dirs=_directories("plugin-dirs", options.get("plugin-dirs") or _PLUGIN_DIRS),
        )


def _directories(option: str, text: str) -> tuple[Path, ...]:
    paths = tuple(Path(one) for one in text.split(":") if one)
    if not paths or not all(path.is_absolute() for path in paths):
        raise Refused(f"option {option!r} is {text!r}; it must be absolute paths, with colons between them")
    return paths


def create_network(network: Document, found: NetworkConfigurationList) -> Document:
    """Return what podman stores for `podman network create -d cni`.

    Podman must neither choose addresses nor answer names, so its IPAM is off, and DNS too unless a plugin of the list
    takes the names.

    Args:
        network: What podman asks for.
        found: The list.

    Raises:
        Refused: Something is asked for that the list decides.
    """
    asked = [option for key, option in _DECIDED_BY_LIST.items() if network.get(key)]
    asked += [option for key, option in _FLAGS_OF_LIST.items() if network.get(key)]
    if (network.get("ipam_options") or {}).get("driver", "none") != "none":
        asked.append("--ipam-driver")
    if asked:
        where = found.source or found.name
        raise Refused(f"{'; '.join(asked)}: a CNI list decides this itself; leave it out, and change {where}")
    answers_names = bool(network.get("dns_enabled")) and _declares(found, "aliases")
    return {**network, "ipam_options": {"driver": "none"}, "dns_enabled": answers_names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container on one network, as netavark describes it to `setup` and `teardown`.

    Attributes:
        settings: The network's options.
        container_id: The container's ID.
        name: Its name.
        ifname: Name of the interface inside.
        ips: The addresses of `--ip` and `--ip6`.
        mac: The address of `--mac-address`, empty without one.
        aliases: Further names, for plugins that answer names.
        ports: The published ports.
    """

    settings: Settings
    container_id: str
    name: str
    ifname: str
    ips: tuple[str, ...]
    mac: str
    aliases: tuple[str, ...]
    ports: tuple[JsonObject, ...]

    @classmethod
    def from_document(cls, document: Document) -> Self:
        """Return the container that netavark describes.

        Raises:
            NotUnderstood: A key is missing, or has another type.
            Refused: An option of the network is unknown.
            InvalidParameter: A value cannot be what it should be.
        """
        try:
            options: Document = document["network_options"]
            return cls(
                settings=Settings.of_network(document["network"]),
                container_id=document["container_id"],
                name=document["container_name"],
                ifname=options["interface_name"],
                ips=tuple(options.get("static_ips") or ()),
                mac=options.get("static_mac") or "",
                aliases=tuple(options.get("aliases") or ()),
                ports=tuple(one for mapping in document.get("port_mappings") or () for one in _ports(mapping)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise NotUnderstood(f"the input is not that of netavark's plugin API 1.0.0: {exc!r}") from exc

    def attachment(self, found: NetworkConfigurationList | None, netns: str) -> Attachment:
        """Return what the plugins of the list receive, for DEL also without the list.

        CNI_ARGS are those of podman's own CNI. What they say is also in the capability arguments.
        """
        pairs = {"IgnoreUnknown": "1", CALLER: self.name, "IP": next(iter(self.ips), ""), "MAC": self.mac}
        capabilities: dict[str, JsonValue] = {
            "portMappings": list(self.ports),
            "ips": list(self.ips),
            "mac": self.mac,
            "aliases": list(self.aliases),
        }
        if found is not None and "dnsname" in found.plugin_types:  # it does not follow CNI's conventions
            capabilities["aliases"] = {found.name: list(self.aliases)}
        return Attachment(
            container_id=self.container_id,
            ifname=self.ifname,
            netns=netns,
            args={key: value for key, value in pairs.items() if value},
            capability_args={key: value for key, value in capabilities.items() if value},
        )

    def ignored(self, found: NetworkConfigurationList) -> str:
        """Return a warning about published ports that no plugin of the list takes; empty if there is none."""
        if not self.ports or _declares(found, "portMappings"):
            return ""
        return f"-p has no effect on network {found.name}: no plugin of its list has the capability portMappings"

    def missing(self, result: Result) -> str:
        """Return what was asked for by option and is not in the result; empty if nothing is missing."""
        addresses = {ip.address.ip for ip in result.ips}
        lacking = [f"--ip {one}" for one in self.ips if ip_address(one) not in addresses]
        if self.mac and self.mac.lower() != _mac(self.ifname, result).lower():
            lacking.append(f"--mac-address {self.mac}")
        return ", ".join(lacking)


def _ports(mapping: Document) -> Iterator[JsonObject]:
    """Yield each port of a range, in the form of CNI's capability `portMappings`."""
    host_ip = {"hostIP": mapping["host_ip"]} if mapping.get("host_ip") else {}
    for protocol in (mapping.get("protocol") or "tcp").split(","):
        for offset in range(mapping.get("range") or 1):
            host, container = mapping["host_port"] + offset, mapping["container_port"] + offset
            yield {"hostPort": host, "containerPort": container, "protocol": protocol, **host_ip}


def _declares(found: NetworkConfigurationList, capability: str) -> bool:
    return any(capability in plugin.capabilities for plugin in found.plugins)


def _mac(ifname: str, result: Result) -> str:
    return next((one.mac for one in result.interfaces if one.sandbox and one.name == ifname), "")


def render_status(ifname: str, result: Result) -> Document:
    """Return netavark's status of an interface, which `podman inspect` shows.

    Args:
        ifname: Name of the interface inside.
        result: The result of the list's ADD.
    """
    subnets = [
        {"ipnet": str(ip.address), "gateway": None if ip.gateway is None else str(ip.gateway)} for ip in result.ips
    ]
    return {
        "dns_search_domains": list(result.dns.search),
        "dns_server_ips": [one for one in result.dns.nameservers if _is_address(one)],
        "interfaces": {ifname: {"mac_address": _mac(ifname, result), "subnets": subnets}},
    }


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
