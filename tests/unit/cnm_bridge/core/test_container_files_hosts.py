# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container's own name in its /etc/hosts."""

from ipaddress import IPv4Address

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.container_files import ContainerRecord, FileEdit, correct_addresses, remove_addresses

DOCKERS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
ADDRESS = IPv4Address("10.1.0.2")


def container(host: str = "box", domain: str = "") -> ContainerRecord:
    """Return what dockerd has written about a container."""
    return ContainerRecord(config={"Config": {"Hostname": host, "Domainname": domain}})


@pytest.mark.parametrize(
    ("host", "domain", "names"),
    [("box", "", "box"), ("box", "lan.example", "box.lan.example box"), ("box.lan", "", "box.lan box")],
)
def test_a_mapped_address(host: str, domain: str, names: str) -> None:
    """It becomes an IPv4 address, if it is the container's."""
    others = "::ffff:10.1.0.9\tother\nfd00::2\tbox\n# ::ffff:10.1.0.2\tbox\n"
    found = f"{DOCKERS}{others}::ffff:10.1.0.2\t{names}\n"
    edited = correct_addresses(found, container(host, domain), address=ADDRESS)
    assert edited == FileEdit(content=f"{DOCKERS}{others}10.1.0.2\t{names}\n")
    assert edited.content is not None
    assert correct_addresses(edited.content, container(host, domain), address=ADDRESS) == FileEdit()


def test_all_networks_of_a_container() -> None:
    """The lines of its other networks are corrected as well."""
    found = f"{DOCKERS}::ffff:10.2.0.2\tbox\n::ffff:10.1.0.2\tbox\n"
    corrected = f"{DOCKERS}10.2.0.2\tbox\n10.1.0.2\tbox\n"
    assert correct_addresses(found, container(), address=ADDRESS) == FileEdit(content=corrected)


def test_a_container_without_ipv6() -> None:
    """Docker leaves out the line of an address that it takes for an IPv6 address; and only then."""
    found = "127.0.0.1\tlocalhost\n"
    edited = correct_addresses(found, container(), address=ADDRESS)
    assert edited.content == f"{found}10.1.0.2\tbox\n"
    assert correct_addresses(edited.content, container(), address=ADDRESS) == FileEdit()
    assert correct_addresses(found, container(), address=None) == FileEdit()
    assert correct_addresses(DOCKERS, container(), address=ADDRESS) == FileEdit()


def test_an_endpoint_that_leaves() -> None:
    """Its lines go; those of other addresses and other names stay."""
    kept = f"{DOCKERS}10.2.0.2\tbox\n10.1.0.2\tother\n10.1.0.2 box\n"
    found = f"{kept}10.1.0.2\tbox\nfd00::2\tbox\n"
    assert remove_addresses(found, container(), addresses=("10.1.0.2", "fd00::2")) == FileEdit(content=kept)
    assert remove_addresses(kept, container(), addresses=("10.1.0.2",)) == FileEdit()


@pytest.mark.parametrize("text", ["127.0.0.1\tlocalhost", "127.0.0.1\tlocalhost\r\n", "# a\x0cb\u2028c\n", ""])
def test_what_the_container_has_written(text: str) -> None:
    """Nothing else of the file changes: lines end as they did, and have any characters."""
    assert correct_addresses(DOCKERS + text, container(), address=ADDRESS) == FileEdit()
    assert remove_addresses(text, container(), addresses=("10.1.0.2",)) == FileEdit()
    end = "" if text.endswith("\n") or not text else "\n"
    added = correct_addresses(text, container(), address=ADDRESS)
    assert added == FileEdit(content=f"{text}{end}10.1.0.2\tbox\n")


@pytest.mark.parametrize(
    "config", [None, {}, {"Config": {}}, {"Config": {"Hostname": ""}}, {"Config": 7}, {"Config": {"Hostname": [7]}}]
)
def test_a_container_whose_name_is_not_known(config: JsonObject | None) -> None:
    """Its file stays, and the reason is given."""
    unknown = ContainerRecord(config=config)
    for edited in (
        correct_addresses("::ffff:10.1.0.2\tbox\n", unknown, address=ADDRESS),
        remove_addresses("10.1.0.2\tbox\n", unknown, addresses=("10.1.0.2",)),
    ):
        assert edited.content is None
        assert "host name" in edited.obstacle
