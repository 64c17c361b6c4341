# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds IPAM sections on disk: those of network configuration lists, and files that have nothing else."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, parse_json
from cni_invoker import CniError, ConfigurationDirectories, ConfigurationIndex
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.ipam.pool import NAME_IT, OPTION, has_subnet
from cnm_bridge.core.planning.ipam.section import (
    SUFFIX,
    IpamSection,
    parse_section,
    refuse_unsuitable,
    section_of_list,
)

_FILE_BYTES: Final = 1 << 20
"""A larger file is not an IPAM section."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The IPAM sections in the configuration directories. They are read anew by each look-up: they have some lines.

    The methods read files, so they are called in a thread.
    """

    directories: ConfigurationDirectories

    def find(self, name: str) -> IpamSection:
        """Return the section of this name: of the list, or of the file that has nothing else.

        Raises:
            Refused: There is none, there are two, or its plugin cannot give Docker addresses.
        """
        section = self._find(name)
        refuse_unsuitable(section)
        return section

    def find_with_subnet(self, subnet: IPv4Network | IPv6Network) -> IpamSection:
        """Return the only section with a range of this subnet.

        Raises:
            Refused: There is none, or more than one.
        """
        index = self.directories.index()
        names = [*index.names]
        for file in _files(index):
            with suppress(OSError, CniError, JsonError):
                names.append(_read(file).name)
        found = []
        for name in dict.fromkeys(names):
            with suppress(Refused):  # it cannot give Docker addresses
                section = self.find(name)
                found += [section] if has_subnet(section, subnet) else []
        if len(found) != 1:
            which = f"several have {subnet}: {', '.join(map(str, found))}" if found else f"none has {subnet}"
            raise Refused(f"option {OPTION} is missing, and of the IPAM sections {which}; {NAME_IT}")
        return found[0]

    def _find(self, name: str) -> IpamSection:
        index = self.directories.index()
        found: dict[Path, IpamSection] = {}
        unusable: list[str] = []
        for file in _files(index):
            try:
                section = _read(file)
            except (OSError, CniError, JsonError) as exc:
                unusable.append(f"{file}: {exc}")
                continue
            if section.name == name:
                found[file] = section
        try:
            network = index.find(name)
        except ConfigurationNotFound as exc:
            if not found:
                raise Refused(_none(str(exc), index, unusable)) from exc
        else:
            if not found:
                return section_of_list(network)
            found = {**({} if network.source is None else {network.source: section_of_list(network)}), **found}
        if len(found) > 1:
            raise Refused(f"{' and '.join(map(str, found))} both have the name {name}; rename one of them")
        return next(iter(found.values()))


def _files(index: ConfigurationIndex) -> Iterator[Path]:
    for directory in index.directories:
        try:
            names = sorted(file for file in directory.iterdir() if file.suffix == SUFFIX)
        except OSError:  # a missing directory counts as empty
            continue
        yield from names


def _read(file: Path) -> IpamSection:
    if not file.is_file():
        raise OSError("not a regular file")
    with file.open("rb") as opened:
        data = opened.read(_FILE_BYTES + 1)
    if len(data) > _FILE_BYTES:
        raise OSError(f"it has more than {_FILE_BYTES} bytes")
    return parse_section(parse_json(data), file)


def _none(text: str, index: ConfigurationIndex, unusable: list[str]) -> str:
    places = ", ".join(map(str, index.directories))
    broken = f"; unusable: {'; '.join(unusable)}" if unusable else ""
    return f"cni.ipam: {text}; nor is there a file *{SUFFIX} with that name in {places}{broken}"
