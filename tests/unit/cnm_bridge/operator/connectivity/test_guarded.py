# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""With what a guarded network is tested: entries that name one destination, and an address that none has."""

from ipaddress import ip_address

import pytest

from cnm_bridge.operator.connectivity.guarded import REFUSED, Guard, parse_lookup


def test_destinations() -> None:
    """Names by TCP 443 or their own port, single addresses by a ping or their port; the rest cannot be tried."""
    entries = (
        "api.example.com", "git.example.com:22/tcp", "range.example.com:8000-8100", "any.example.com:*",
        "dns.example.com:53/udp", "*.example.com", "@github", "host:80", "10.0.0.0/8", "10.0.5.7", "10.0.5.7:5432/tcp",
        "10.0.5.8/32:80", "2001:db8::7", "[2001:db8::8]:443", "[2001:db8::/32]:443",
    )  # fmt: skip
    assert [str(one) for one in Guard(entries=entries).destinations()] == [
        "api.example.com:443", "git.example.com:22", "range.example.com:8000", "any.example.com:443", "10.0.5.7",
        "10.0.5.7:5432", "10.0.5.8:80", "2001:db8::7", "[2001:db8::8]:443",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "is_audited", "expected"),
    [
        (("a.example", "10.0.0.0/8"), False, True),
        (("0.0.0.0/0:443",), False, False),
        (("192.0.2.0/24",), False, False),
        ((), True, False),
    ],
)
def test_what_is_refused(entries: tuple[str, ...], is_audited: bool, expected: bool) -> None:
    """Nothing of the allow-list has the address, and not everything passes."""
    assert Guard(entries=entries, is_audited=is_audited).refuses(REFUSED) is expected


def test_the_output_of_nslookup() -> None:
    """Busybox's form, old and new; the server's own address is none of the name."""
    head = "Server:    169.254.53.53\nAddress 1: 169.254.53.53\n\n"
    assert parse_lookup(f"{head}Name:      a.example\nAddress 1: 192.0.2.7\nAddress 2: 2001:db8::7\n") == (
        ip_address("192.0.2.7"),
        ip_address("2001:db8::7"),
    )
    new = "Server:\t\t169.254.53.53\nAddress:\t169.254.53.53:53\n\nName:\ta.example\nAddress: 192.0.2.7\n"
    assert parse_lookup(new) == (ip_address("192.0.2.7"),)
    assert parse_lookup(f"{head}** server can't find a.example: NXDOMAIN\n") == ()
