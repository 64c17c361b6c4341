# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""IPAM sections are found by name, in lists and in files of their own; a broken file hides no other."""

import json
from ipaddress import ip_network
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.errors import Refused
from cnm_bridge.driver.ipam.sections import Sections

IPAM: JsonObject = {"type": "host-local", "subnet": "10.1.2.0/24"}


def write(directory: Path, file: str, document: JsonValue) -> None:
    """Write a file."""
    directory.mkdir(exist_ok=True)
    (directory / file).write_text(json.dumps(document))


def write_section(directory: Path, name: str) -> None:
    """Write a file with nothing but a section."""
    write(directory, f"{name}.ipam", {"cniVersion": "1.0.0", "name": name, "ipam": IPAM})


def write_list(directory: Path, name: str, ipam: JsonObject = IPAM) -> None:
    """Write a network configuration list."""
    plugins: list[JsonValue] = [{"type": "bridge", "ipam": ipam}]
    write(directory, f"{name}.conflist", {"cniVersion": "1.0.0", "name": name, "plugins": plugins})


def test_a_file_and_a_list(tmp_path: Path) -> None:
    """Either has a section; what is changed on disk applies to the next look-up."""
    sections = Sections(ConfigurationDirectories(tmp_path))
    write_section(tmp_path, "lan")
    write_list(tmp_path, "blue")
    assert (sections.find("lan").source, sections.find("blue").source) == (
        tmp_path / "lan.ipam",
        tmp_path / "blue.conflist",
    )
    write(tmp_path, "lan.ipam", {"cniVersion": "1.0.0", "name": "lan", "ipam": {**IPAM, "dataDir": "/data"}})
    assert sections.find("lan").ipam["dataDir"] == "/data"


def test_a_mistyped_name(tmp_path: Path) -> None:
    """The error lists what would work: files and lists with a section that can give addresses."""
    sections = Sections(ConfigurationDirectories(tmp_path))
    with pytest.raises(Refused, match=r"there are: none; put a list with an IPAM section, or a file lna\.ipam, there$"):
        sections.find("lna")
    write_section(tmp_path, "lan")
    write_list(tmp_path, "blue")
    write_list(tmp_path, "leased", {"type": "dhcp"})
    write(tmp_path, "bare.conflist", {"cniVersion": "1.0.0", "name": "bare", "plugins": [{"type": "bridge"}]})
    with pytest.raises(Refused, match=r"no IPAM section lna in .*; there are: blue, lan; did you mean lan\?$"):
        sections.find("lna")


@pytest.mark.parametrize("broken", ["{", "[]", '{"name": "lan"}', '{"name": "lan", "ipam": {"type": "a/b"}}'])
def test_a_broken_file_hides_no_other(tmp_path: Path, broken: str) -> None:
    """It is named if the wanted section is not found."""
    sections = Sections(ConfigurationDirectories(tmp_path))
    (tmp_path / "a.ipam").write_text(broken)
    (tmp_path / "dir.ipam").mkdir()
    write_section(tmp_path, "wan")
    assert sections.find("wan").name == "wan"
    with pytest.raises(Refused, match=r"cni\.ipam: .*unusable: .*a\.ipam: .*dir\.ipam: not a regular file"):
        sections.find("lan")


def test_two_of_a_name(tmp_path: Path) -> None:
    """It would depend on chance which of them gives the addresses."""
    sections = Sections(ConfigurationDirectories(tmp_path))
    write_section(tmp_path, "lan")
    write_list(tmp_path, "lan")
    with pytest.raises(Refused, match=r"lan\.conflist and .*lan\.ipam both have the name lan; rename one of them"):
        sections.find("lan")


def test_sections_that_can_give_no_address(tmp_path: Path) -> None:
    """The reason is given, not that there is none; other sections can be found."""
    write_list(tmp_path, "lan", {"type": "dhcp"})
    write(tmp_path, "leases.ipam", {"cniVersion": "1.0.0", "name": "leases", "ipam": {"type": "dhcp"}})
    write_section(tmp_path, "wan")
    sections = Sections(ConfigurationDirectories(tmp_path))
    assert sections.find("wan").name == "wan"
    for name in ("lan", "leases"):
        with pytest.raises(Refused, match="plugin dhcp: it needs the container's link"):
            sections.find(name)
    write_list(tmp_path, "fixed", {"type": "static"})
    with pytest.raises(Refused, match="it gives every container the same addresses; use host-local"):
        sections.find("fixed")


def test_the_only_section_with_a_subnet(tmp_path: Path) -> None:
    """Compose sends no options: a subnet that one section has is enough, and one that two have is not."""
    sections = Sections(ConfigurationDirectories(tmp_path))
    write_section(tmp_path, "lan")
    write_list(tmp_path, "blue", {"type": "host-local", "subnet": "10.9.0.0/24"})
    write_list(tmp_path, "leases", {"type": "dhcp"})
    assert sections.find_with_subnet(ip_network("10.1.2.0/24")).name == "lan"
    with pytest.raises(Refused, match=r"none has 10\.8\.0\.0/24; name the CNI configuration"):
        sections.find_with_subnet(ip_network("10.8.0.0/24"))
    write_list(tmp_path, "red", {"type": "host-local", "subnet": "10.9.0.0/24"})
    with pytest.raises(Refused, match=r"several have 10\.9\.0\.0/24: .*blue.*red"):
        sections.find_with_subnet(ip_network("10.9.0.0/24"))
