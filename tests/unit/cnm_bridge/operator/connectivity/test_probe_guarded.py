# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""With what a guarded network is tested: entries that name one destination."""

from ipaddress import ip_address

import pytest

from cnm_bridge.operator.connectivity.probe import REFUSED, Guard, parse_lookup


def test_destinations() -> None:
    """Names and IPv4 addresses by TCP 443 or their own port; the rest cannot be tried."""
    entries = (
        "api.example.com", "git.example.com:22/tcp", "range.example.com:8000-8100", "any.example.com:*",
        "dns.example.com:53/udp", "*.example.com", "@github", "host:80", "10.0.0.0/8", "10.0.5.7", "10.0.5.7:5432/tcp",
        "2001:db8::7", "[2001:db8::8]:443",
    )  # fmt: skip
    assert [*Guard(entries=entries).destinations()] == [
        ("api.example.com", 443), ("git.example.com", 22), ("10.0.5.7", 443), ("10.0.5.7", 5432),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "is_audited", "expected"),
    [
        (("a.example", "10.0.0.0/8", "1.2.3", "2001:db8::/32"), False, True),
        (("0.0.0.0/0",), False, False),
        (("0.0.0.0/0:443",), False, True),
        (("192.0.2.1:8000-8079", "192.0.2.1:8080/udp"), False, True),
        (("192.0.2.1:8080/tcp",), False, False),
        (("128.0.0.0/1",), False, False),
        (("192.0.2.0/24:8000-9000",), False, False),
        (("192.0.2.0/24:*",), False, False),
        ((), True, False),
    ],
)
def test_what_is_refused(entries: tuple[str, ...], is_audited: bool, expected: bool) -> None:
    """An address that nothing has, unless a network of the allow-list has it with its port, or everything passes."""
    assert Guard(entries=entries, is_audited=is_audited).refuses(REFUSED, 8080) is expected


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
