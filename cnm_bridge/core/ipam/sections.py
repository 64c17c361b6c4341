# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""IPAM sections, and the pools that they give; pure.

A section is the IPAM plugin of a network configuration list, or of a file that has nothing else:

```
{ "cniVersion": "1.0.0", "name": "lan", "ipam": { "type": "host-local", "subnet": "10.1.2.0/24" } }
```

Such a file ends in `.ipam`, so that other runtimes, which read the same directory, do not take it for a network.

A pool's ID is `SECTION,SUBNET,PART,DIGITS`, e.g. `lan,10.1.2.0/24,,5f0c81aa`. So a pool whose record was lost can be
made again from the ID that Docker has kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, find_object, find_str, get_object, get_str
from cni_bridge_state import AddressPoolRecord, PoolId
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.ipam.wire import RequestPool
from cnm_bridge.core.lists.address_ranges import RANGED, AddressRange, overlap, ranges_of
from cnm_bridge.core.lists.changes import ipam_configuration

SUFFIX: Final = ".ipam"

_UNSUITABLE: Final[Mapping[str, str]] = {
    "dhcp": "it needs the container's link, and Docker asks for the address before there is one; use a network of "
    "driver cni-bridge with --ipam-driver null, which runs dhcp in the sandbox",
    "static": "it gives every container the same addresses; use host-local",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IpamSection:
    """An IPAM section.

    Attributes:
        name: CNI's network name, by which plugins keep reservations apart.
        configuration: A list with the IPAM plugin as its only plugin, with the input that CNI SPEC §4 describes.
    """

    name: str
    configuration: NetworkConfigurationList
    source: Path | None

    @property
    def plugin(self) -> PluginConfiguration:
        """The IPAM plugin, as a plugin of its own."""
        return self.configuration.plugins[0]

    @property
    def ipam(self) -> JsonObject:
        """The content of the key `ipam`."""
        return get_object(self.plugin.document, "ipam")

    @property
    def ranges(self) -> tuple[tuple[JsonObject, AddressRange], ...] | None:
        """Its ranges, each with its part of the section; None if it is not known how its plugin writes them.

        Raises:
            Refused: They cannot be parsed.
        """
        if self.plugin.type not in RANGED:
            return None
        try:
            return ranges_of(self.ipam)
        except JsonError as exc:
            raise Refused(f"{self} cannot be used: {exc}") from exc

    def __str__(self) -> str:
        return f"IPAM section {self.name} ({self.source})"


def section_of_list(network: NetworkConfigurationList) -> IpamSection:
    """Return the IPAM section of a list, that of its first plugin with one; refuse a list without one."""
    for plugin in network.plugins:
        if plugin.ipam_type is not None:
            return _make(network.document, network.name, ipam_configuration(plugin), network.source)
    raise Refused(
        f"CNI configuration {network.name} ({network.source}) has no IPAM section; add one to its plugin, or a file "
        f"{network.name}{SUFFIX} with one"
    )


def parse_section(document: JsonValue, source: Path) -> IpamSection:
    """Return the section of a file that has nothing else.

    Raises:
        JsonError: It has no name, or no IPAM plugin.
        BadConfiguration: A name or a version is invalid.
    """
    file = as_object(document, "the file")
    if find_object(file, "ipam") is None:
        raise JsonError("ipam is missing")
    plugin: JsonObject = {"type": get_str(get_object(file, "ipam"), "type"), "ipam": get_object(file, "ipam")}
    return _make(file, get_str(file, "name"), plugin, source)


def refuse_unsuitable(section: IpamSection) -> None:
    """Refuse a section whose IPAM plugin cannot give Docker addresses."""
    reason = _UNSUITABLE.get(section.plugin.type)
    if reason is not None:
        raise Refused(f"{section} cannot give Docker addresses: plugin {section.plugin.type}: {reason}")


def _make(document: JsonObject, name: str, plugin: JsonObject, source: Path | None) -> IpamSection:
    versions = {key: document[key] for key in ("cniVersion", "cniVersions") if key in document}
    whole: JsonObject = {**versions, "name": name, "plugins": [plugin]}
    return IpamSection(
        name=name, configuration=NetworkConfigurationList.from_document(whole, source=source), source=source
    )


OPTION: Final = "cni.ipam"
"""The option of `--ipam-opt` that names the section."""

NAME_IT: Final = f"name the CNI configuration whose IPAM section gives the addresses: --ipam-opt {OPTION}=NAME"

_PARTS: Final = 4

IpNetwork = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPool:
    """What a pool stands for.

    Attributes:
        sub_pool: The part of it that addresses are chosen from; None for all.
        gateway: The section's gateway, which its plugin never assigns; None if that is not known.
    """

    section: str
    subnet: IpNetwork
    sub_pool: IpNetwork | None
    gateway: IPv4Address | IPv6Address | None = None


def section_name(options: Mapping[str, str]) -> str | None:
    """Return the name of the section that the user's options name; None without the option, as compose sends none."""
    for option in options:
        if option != OPTION:
            raise BadOption.unknown(option, [OPTION])
    name = options.get(OPTION)
    if name == "":
        raise BadOption(OPTION, f"it is empty; {NAME_IT}")
    return name


def has_subnet(section: IpamSection, subnet: IpNetwork) -> bool:
    """Return whether a section has a range of a subnet; false if its ranges are not known."""
    return any(addresses.subnet == subnet for _, addresses in section.ranges or ())


def choose_pool(section: IpamSection, request: RequestPool) -> ChosenPool:
    """Return the pool for a request: the subnet that the user gave, or the section's first range of the family."""
    ranges = section.ranges
    if ranges is None:
        return _choose_unread(section, request)
    family = [addresses for _, addresses in ranges if addresses.subnet.version == (6 if request.is_ipv6 else 4)]
    subnets = list(dict.fromkeys(addresses.subnet for addresses in family))
    if not subnets:
        kind = "IPv6" if request.is_ipv6 else "IPv4"
        raise Refused(f"{section} has no {kind} range; add one, or create the network without {kind}")
    if request.subnet is not None and request.subnet not in subnets:
        raise Refused(
            f"{section} has no subnet {request.subnet}, but {', '.join(map(str, subnets))}; give that with --subnet, "
            "or leave --subnet out"
        )
    subnet = request.subnet or subnets[0]
    part = request.sub_pool
    usable = [addresses for addresses in family if addresses.subnet == subnet]
    if part is not None and not any(_overlap(part, subnet, addresses.first, addresses.last) for addresses in usable):
        has = ", ".join(f"{addresses.first} to {addresses.last}" for addresses in usable)
        raise Refused(f"--ip-range {part} has no address of {section}, which has {has} in {subnet}")
    return ChosenPool(section=section.name, subnet=subnet, sub_pool=part, gateway=usable[0].gateway)


def refuse_overlap(
    section: IpamSection, chosen: ChosenPool, others: Iterable[tuple[AddressPoolRecord, IpamSection | None]]
) -> None:
    """Refuse a pool whose addresses another section gives to containers, too: their plugins do not know of each other.

    Subnets may overlap if the ranges are known and have no address in common, as those of two networks on one LAN.
    `others` are the pools that Docker has, each with its section; None if that is no longer there.
    """
    for pool, other in others:
        is_apart = _are_apart(section, chosen.subnet, other, pool.subnet)
        if pool.section != section.name and overlap(pool.subnet, chosen.subnet) and not is_apart:
            raise Refused(
                f"{section} cannot be used: {chosen.subnet} overlaps {pool.subnet} of IPAM section {pool.section}, "
                f"of which Docker has a pool already. Use section {pool.section} for both networks, or give the "
                "sections other subnets, or ranges without a common address"
            )


def _are_apart(section: IpamSection, subnet: IpNetwork, other: IpamSection | None, other_subnet: IpNetwork) -> bool:
    """Return whether the ranges of two sections in these subnets are known, and have no address in common."""
    ranges, other_ranges = section.ranges, None if other is None else other.ranges
    if ranges is None or other_ranges is None:
        return False
    own = [addresses for _, addresses in ranges if addresses.subnet == subnet]
    others = [addresses for _, addresses in other_ranges if addresses.subnet == other_subnet]
    return all(mine.is_apart(theirs) for mine in own for theirs in others)


def render_pool_id(pool: ChosenPool, digits: str) -> PoolId:
    """Return the ID of a pool; `digits` distinguish it from other pools of the same subnet."""
    return PoolId(",".join((pool.section, str(pool.subnet), str(pool.sub_pool or ""), digits)))


def parse_pool_id(pool_id: PoolId) -> ChosenPool | None:
    """Return what an ID stands for, without the gateway; None if it is not an ID of this driver."""
    parts = pool_id.split(",")
    if len(parts) != _PARTS or not parts[0]:
        return None
    section, subnet, part, _ = parts
    try:
        return ChosenPool(section=section, subnet=ip_network(subnet), sub_pool=ip_network(part) if part else None)
    except ValueError:
        return None


def _choose_unread(section: IpamSection, request: RequestPool) -> ChosenPool:
    """Return the pool of a plugin whose ranges are not known."""
    kind = section.plugin.type
    if request.subnet is None:
        raise Refused(f"{section}: it is not known how plugin {kind} writes its range; give the subnet with --subnet")
    if request.sub_pool is not None:
        raise Refused(f"{section}: plugin {kind} receives no --ip-range; set the range in the section")
    text = find_str(section.ipam, "gateway")
    try:
        gateway = ip_address(text) if text else None
    except ValueError:  # the plugin reports it
        gateway = None
    return ChosenPool(
        section=section.name,
        subnet=request.subnet,
        sub_pool=None,
        gateway=gateway if gateway is not None and gateway in request.subnet else None,
    )


def _overlap(
    part: IpNetwork, subnet: IpNetwork, first: IPv4Address | IPv6Address, last: IPv4Address | IPv6Address
) -> bool:
    is_inside = part.version == subnet.version and int(part[0]) >= int(subnet[0]) and int(part[-1]) <= int(subnet[-1])
    return is_inside and int(part[0]) <= int(last) and int(part[-1]) >= int(first)
