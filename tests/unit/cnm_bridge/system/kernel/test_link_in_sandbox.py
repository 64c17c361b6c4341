# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The frames that announce addresses, byte by byte; tests/kernel/test_link_departures.py shows them to a kernel."""

from ipaddress import ip_address

from cnm_bridge.system.kernel.link_in_sandbox import frame

MAC = bytes.fromhex("021122334455")


def test_an_arp_announcement() -> None:
    """A broadcast request whose sender and target are the address (RFC 5227, section 3)."""
    assert frame(MAC, ip_address("10.1.0.2")).hex(" ", 2) == (
        "ffff ffff ffff 0211 2233 4455 0806 0001 0800 0604 0001 0211 2233 4455 0a01 0002 0000 0000 0000 0a01 0002"
    )


def test_an_unsolicited_neighbour_advertisement() -> None:
    """To all nodes, with the override flag and the MAC (RFC 4861, section 7.2.6)."""
    assert frame(MAC, ip_address("fd00::2")).hex(" ", 2) == (
        "3333 0000 0001 0211 2233 4455 86dd "
        "6000 0000 0020 3aff fd00 0000 0000 0000 0000 0000 0000 0002 ff02 0000 0000 0000 0000 0000 0000 0001 "
        "8800 f400 2000 0000 fd00 0000 0000 0000 0000 0000 0000 0002 0201 0211 2233 4455"
    )


def test_the_checksum_of_an_advertisement() -> None:
    """The sum of all words of pseudo header and message, carries included, is all ones (RFC 1071)."""
    packet = frame(MAC, ip_address("fd12:3456:789a:ffff:ffff:ffff:ffff:2"))[14:]
    covered = packet[8:40] + len(packet[40:]).to_bytes(4, "big") + (58).to_bytes(4, "big") + packet[40:]
    total = sum(int.from_bytes(covered[at : at + 2], "big") for at in range(0, len(covered), 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF
