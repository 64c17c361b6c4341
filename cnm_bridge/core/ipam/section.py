# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""IPAM sections: the IPAM plugin of a network configuration list, or of a file that has nothing else; pure.

```
{ "cniVersion": "1.0.0", "name": "lan", "ipam": { "type": "host-local", "subnet": "10.1.2.0/24" } }
```

Such a file ends in `.ipam`, so that other runtimes, which read the same directory, do not take it for a network.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, find_object, get_object, get_str
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.lists.address_ranges import RANGED, AddressRange, ranges_of
from cnm_bridge.core.lists.reserved_list import ipam_configuration

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
        source: The file that it is in.
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
    """Return the IPAM section of a list: that of its first plugin with one.

    Raises:
        Refused: It has none.
    """
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
    """Refuse a section whose IPAM plugin cannot give Docker addresses.

    Raises:
        Refused: It needs a link, or gives every container the same addresses.
    """
    reason = _UNSUITABLE.get(section.plugin.type)
    if reason is not None:
        raise Refused(f"{section} cannot give Docker addresses: plugin {section.plugin.type}: {reason}")


def _make(document: JsonObject, name: str, plugin: JsonObject, source: Path | None) -> IpamSection:
    versions = {key: document[key] for key in ("cniVersion", "cniVersions") if key in document}
    whole: JsonObject = {**versions, "name": name, "plugins": [plugin]}
    return IpamSection(
        name=name, configuration=NetworkConfigurationList.from_document(whole, source=source), source=source
    )
