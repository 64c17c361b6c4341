# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds IPAM sections on disk: those of network configuration lists, and files that have nothing else."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, parse_json
from cni_invoker import CniError, ConfigurationDirectories, ConfigurationIndex
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.ipam.sections import (
    NAME_IT,
    OPTION,
    SUFFIX,
    IpamSection,
    has_subnet,
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

        Raises `Refused` if there is none, there are two, or its plugin cannot give Docker addresses.
        """
        section = self._find(name)
        refuse_unsuitable(section)
        return section

    def find_with_subnet(self, subnet: IPv4Network | IPv6Network) -> IpamSection:
        """Return the only section with a range of this subnet; `Refused` if there is none, or more than one."""
        found = []
        for section in self._usable(self.directories.index()):
            with suppress(Refused):  # its ranges cannot be parsed
                found += [section] if has_subnet(section, subnet) else []
        if len(found) != 1:
            which = f"several have {subnet}: {', '.join(map(str, found))}" if found else f"none has {subnet}"
            raise Refused(f"option {OPTION} is missing, and of the IPAM sections {which}; {NAME_IT}")
        return found[0]

    def _usable(self, index: ConfigurationIndex) -> Iterator[IpamSection]:
        """Yield the sections that can give Docker addresses, of lists and of files."""
        names = [*index.names]
        for file in section_files(index.directories):
            with suppress(OSError, CniError, JsonError):
                names.append(read_section(file).name)
        for name in dict.fromkeys(names):
            with suppress(Refused):
                yield self.find(name)

    def _find(self, name: str) -> IpamSection:
        index = self.directories.index()
        found: dict[Path, IpamSection] = {}
        unusable: list[str] = []
        for file in section_files(index.directories):
            try:
                section = read_section(file)
            except (OSError, CniError, JsonError) as exc:
                unusable.append(f"{file}: {exc}")
                continue
            if section.name == name:
                found[file] = section
        try:
            network = index.find(name)
        except ConfigurationNotFound as exc:
            if not found:
                broken = [*map(str, exc.problems), *unusable]
                raise Refused(_none(name, index, [section.name for section in self._usable(index)], broken)) from exc
        else:
            if not found:
                return section_of_list(network)
            found = {**({} if network.source is None else {network.source: section_of_list(network)}), **found}
        if len(found) > 1:
            raise Refused(f"{' and '.join(map(str, found))} both have the name {name}; rename one of them")
        return next(iter(found.values()))


def section_files(directories: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that have nothing but an IPAM section."""
    for directory in directories:
        try:
            names = sorted(file for file in directory.iterdir() if file.suffix == SUFFIX)
        except OSError:  # a missing directory counts as empty
            continue
        yield from names


def read_section(file: Path) -> IpamSection:
    """Return the section of such a file.

    Raises `OSError` if it is not readable, or too large; `JsonError` or `CniError` if it has no valid section.
    """
    if not file.is_file():
        raise OSError("not a regular file")
    with file.open("rb") as opened:
        data = opened.read(_FILE_BYTES + 1)
    if len(data) > _FILE_BYTES:
        raise OSError(f"it has more than {_FILE_BYTES} bytes")
    return parse_section(parse_json(data), file)


def _none(name: str, index: ConfigurationIndex, usable: Sequence[str], unusable: Sequence[str]) -> str:
    places = ", ".join(map(str, index.directories))
    near = get_close_matches(name, usable, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    if not usable:
        hint = f"; put a list with an IPAM section, or a file {name}{SUFFIX}, there"
    broken = f"; unusable: {'; '.join(unusable)}" if unusable else ""
    known = ", ".join(usable) or "none"
    return f"{OPTION}: there is no IPAM section {name} in {places}; there are: {known}{hint}{broken}"
