# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The containers of a test: of which busybox they are made, when they have gone; how a guarded network is tested."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.connectivity import pair
from cnm_bridge.operator.connectivity.pair import DockerCommand, Pair, busybox_tar
from cnm_bridge.operator.connectivity.probe import (
    REFUSED,
    Guard,
    parse_addresses,
    parse_gateways,
    parse_lookup,
    parse_mtu,
)


@pytest.mark.parametrize("loader", ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-aarch64.so.1", "/lib64/ld64.so.2"])
def test_a_busybox_that_needs_shared_libraries(tmp_path: Path, loader: str) -> None:
    """It could not run in an image of its own; ld64.so is the loader of ppc64el and s390x."""
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF" + bytes(600) + loader.encode() + b"\0")
    with pytest.raises(Refused, match="needs shared libraries; install the package busybox-static"):
        busybox_tar(busybox)


_DOCKER = """#!/bin/sh
shift 2
case $1 in
inspect) echo endpoint-of-$4 ;;
esac
"""


@pytest.mark.parametrize(("after", "left"), [(2, ""), (9, "the teardown of an endpoint has not completed in 0.05 s")])
def test_a_teardown_that_docker_does_not_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, left: str
) -> None:
    """The daemon is asked until it knows neither endpoint; a DEL that fails or hangs is left."""
    docker = tmp_path / "docker"
    docker.write_text(_DOCKER, "utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(pair, "busybox_tar", lambda _: b"")  # not every host has a busybox
    monkeypatch.setattr(pair, "_GONE_S", 0.05)
    monkeypatch.setattr(pair, "_PAUSE_S", 0.02)
    asked: list[frozenset[str]] = []

    def is_torn_down(endpoints: frozenset[str]) -> bool:
        asked.append(endpoints)
        return len(asked) == after

    made = Pair(DockerCommand("unix:///none"), "blue", publishes=False, is_torn_down=is_torn_down)
    assert made.start(tmp_path).succeeded
    assert made.remove() == left
    assert set(asked) == {frozenset(f"endpoint-of-{name}" for name in made.names)}


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


_LINKS = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
    inet6 ::1/128 scope host
2: eth0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP,M-DOWN> mtu 1450 qdisc noqueue
    link/ether 02:42:0a:16:00:02 brd ff:ff:ff:ff:ff:ff
    inet 10.22.0.2/16 brd 10.22.255.255 scope global eth0
    inet6 fe80::42:aff:fe16:2/64 scope link
    inet6 fd22::2/64 scope global flags 02
"""


def test_addresses_and_mtu() -> None:
    """Neither those of lo nor link-local ones."""
    assert parse_addresses(_LINKS) == (ip_address("10.22.0.2"), ip_address("fd22::2"))
    assert parse_mtu(_LINKS) == 1450
    assert parse_mtu("") is None


def test_gateways() -> None:
    """Of both families; a route without one has none."""
    routes = ("default via 10.22.0.1 dev eth0 \n10.22.0.0/16 dev eth0\n", "default via fd22::1 dev eth0 metric 1\n")
    assert parse_gateways(routes) == (ip_address("10.22.0.1"), ip_address("fd22::1"))
    assert parse_gateways(("default dev eth0 scope link\n",)) == ()
