# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The entries of an allow-list: what each allows, and the text that says what is wrong with one."""

import json
from collections.abc import Sequence

import pytest

from cni_egress.policy import LIMIT, BadEntry, Policy, expand_sets

WEB = ["80/tcp", "443/tcp", "443/udp"]


def ports(policy: Policy, name: str) -> list[str]:
    """What a policy allows at a name."""
    return [str(one) for one in policy.ports_of(name)]


def networks(policy: Policy) -> list[str]:
    """The networks of a policy, with their ports."""
    return [f"{one.network} {one.ports}" for one in policy.networks]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("api.example.com", WEB),
        ("API.Example.com.", WEB),
        ("api.example.com:22", ["22/tcp", "22/udp"]),
        ("api.example.com:22/tcp", ["22/tcp"]),
        ("api.example.com:8000-8100/udp", ["8000-8100/udp"]),
        ("api.example.com:*", ["*"]),
        ("*.example.com", WEB),
    ],
)
def test_a_name(entry: str, expected: list[str]) -> None:
    """A name alone means the web; with ports it means these and no others."""
    policy = Policy.parse([entry])
    assert ports(policy, "api.example.com") == ports(policy, "API.example.COM.") == expected
    assert ports(policy, "example.com") == ports(policy, "api.example.com.evil") == []
    assert policy.has_names


def test_a_wildcard_does_not_allow_its_apex_or_another_zone() -> None:
    """`*.example.com` allows names at any depth below example.com, and nothing that only ends in the same letters."""
    policy = Policy.parse(["*.example.com:443/tcp", "a.example.com:22/tcp", "*.a.example.com:80/tcp"])
    assert ports(policy, "b.example.com") == ports(policy, "x.y.example.com") == ["443/tcp"]
    assert ports(policy, "a.example.com") == ["22/tcp", "443/tcp"]
    assert ports(policy, "b.a.example.com") == ["80/tcp", "443/tcp"]
    for name in ("example.com", "evilexample.com", "com", "example.com.evil.net", ""):
        assert ports(policy, name) == []


def test_entries_of_one_name_add_up() -> None:
    """Duplicates count once, and `*` covers the rest."""
    policy = Policy.parse(["a.example:22/tcp", "a.example:22", "b.example", "b.example:*", "a.example:22/tcp"])
    assert ports(policy, "a.example") == ["22/tcp", "22/udp"]
    assert ports(policy, "b.example") == ["*"]
    assert policy.entries == ("a.example:22/tcp", "a.example:22", "b.example", "b.example:*")
    assert [str(one) for one in policy.all_ports()] == ["*", "22/tcp", "22/udp"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("10.0.5.7", ["10.0.5.7/32 *"]),
        ("10.0.5.0/24:*", ["10.0.5.0/24 *"]),
        ("10.0.5.7:5432", ["10.0.5.7/32 5432/tcp", "10.0.5.7/32 5432/udp"]),
        ("10.0.5.0/24:5432/TCP", ["10.0.5.0/24 5432/tcp"]),
        ("2001:db8::/32", ["2001:db8::/32 *"]),
        ("2001:db8::1:443", ["2001:db8::1:443/128 *"]),
        ("[2001:db8::/32]:443/udp", ["2001:db8::/32 443/udp"]),
        ("[2001:db8::1]", ["2001:db8::1/128 *"]),
        ("0.0.0.0/0", ["0.0.0.0/0 *"]),
        ("::/0", ["::/0 *"]),
    ],
)
def test_a_network(entry: str, expected: list[str]) -> None:
    """An address or a network alone means every protocol; with a port, that port."""
    policy = Policy.parse([entry])
    assert networks(policy) == expected
    assert not policy.has_names


def test_a_service_of_the_host() -> None:
    """`host` is not a name."""
    policy = Policy.parse(["host:8080/tcp", "host:53"])
    assert [str(one) for one in policy.host] == ["53/tcp", "8080/tcp", "53/udp"]
    assert not policy.has_names


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("", "an entry is empty"),
        (
            "https://api.example.com/v1",
            r"'https://api.example.com/v1': a policy knows no https://; write api.example.com$",
        ),
        ("ssh://git.example.com:22", r"write git\.example\.com:PORT"),
        ("api.example.com/v1", r"a policy knows no paths; write api\.example\.com$"),
        ("api.example.com/tcp", "a policy knows no paths"),
        ("_dmarc.example.com", "no underscore"),
        ("münchen.example", r"write the ASCII form, xn--mnchen-3ya\.example$"),
        ("*", r"'\*' would allow every name; to allow everything, write 0\.0\.0\.0/0 and ::/0"),
        ("a.*.example.com", "may only be the whole first label"),
        ("*example.com", r"e\.g\. \*\.example\.com"),
        ("*.com", "anyone can have a name below com; allow the names that are needed"),
        ("*.co.uk", r"anyone can have a name below co\.uk"),
        ("api.example.com:0", "ports are 1 to 65535"),
        ("api.example.com:65536", "ports are 1 to 65535"),
        ("api.example.com:90-80", "the range begins after its end; write 80-90"),
        ("api.example.com:", "the port is missing"),
        ("api.example.com:https", "'https' is not a port: write 443, 8000-8100, 53/udp or"),
        ("api.example.com:53/sctp", "the protocol 'sctp' is unknown"),
        ("10.0.5.7/24", r"has host bits; write 10\.0\.5\.0/24 or 10\.0\.5\.7"),
        ("[2001:db8::1/32]:443", r"has host bits; write 2001:db8::/32 or 2001:db8::1"),
        ("10.0.5.0/33", "is not an address or a network"),
        ("2001:db8:::1", "is not an address or a network"),
        ("fe80::1%eth0", "write the name or the address alone"),
        ("::ffff:10.0.0.1", r"write the IPv4 address, 10\.0\.0\.1"),
        ("[10.0.5.7]:443", "write an IPv6 network with a port as"),
        ("[2001:db8::1]443", "write an IPv6 network with a port as"),
        ("10.0.5.300", "is neither an address nor a name"),
        ("10.0.5", "is neither an address nor a name"),
        ("user@example.com", "write the name or the address alone"),
        ("-a.example.com", "is not the name of a host"),
        ("a..example.com", "is not the name of a host"),
        (f"{'a' * 64}.example.com", "is not the name of a host"),
        (".".join(["a" * 60] * 5), "is not the name of a host"),
        ("a.example b.example", "has a space or a control character"),
        ("a.example\n", None),
        ("host", "which services of the host"),
        ("host:*", "which services of the host"),
        ("@github", "sets are not permitted here"),
    ],
)
def test_a_bad_entry(entry: str, message: str | None) -> None:
    """The error quotes the entry, and says what to write."""
    if message is None:  # white space around an entry does not matter
        assert Policy.parse([entry]).has_names
        return
    with pytest.raises(BadEntry, match=message):
        Policy.parse(["good.example.com", entry])


def test_a_public_suffix_can_be_forced() -> None:
    """An operator may know what he does."""
    assert ports(Policy.parse(["*.com"], public_suffixes=True), "a.com") == WEB


def test_too_many_entries() -> None:
    """The limit counts each entry once."""
    entries = [f"n{number}.example.com" for number in range(LIMIT)]
    assert len(Policy.parse([*entries, entries[0]]).names) == LIMIT
    with pytest.raises(BadEntry, match="10001 entries: a policy may have 10000"):
        Policy.parse([*entries, "one.more"])


def test_sets() -> None:
    """A set may have other sets, but not itself."""
    sets: dict[str, Sequence[str]] = {"a": ["a.example", "@b"], "b": ["b.example"], "c": ["@d"], "d": ["@c"]}
    assert [*expand_sets(["x.example", "@a", "@b"], sets.__getitem__)] == [
        "x.example",
        "a.example",
        "b.example",
        "b.example",
    ]
    with pytest.raises(BadEntry, match="'@c': the set contains itself: @c > @d > @c"):
        list(expand_sets(["@c"], sets.__getitem__))
    with pytest.raises(BadEntry, match=r"'@\.\./x': the name of a set has letters"):
        list(expand_sets(["@../x"], sets.__getitem__))


def test_json() -> None:
    """A policy is written and read without loss."""
    entries = ["api.example.com", "*.com:22/tcp", "10.0.0.0/8:5432", "[::/0]:443", "host:53/udp"]
    policy = Policy.parse(entries, audit=True, public_suffixes=True)
    assert Policy.from_document(json.loads(json.dumps(policy.document))) == policy
    assert Policy.from_document({}) == Policy()
