# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Servers and clients in any network namespace; a server answers with its own name."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cni_invoker.documents.jsontypes import get_object, get_str
from tests.lab import Container, Lab, LabError, wait_until

HOST_IP: Final = "198.51.100.1"
OUTSIDE_IP: Final = "198.51.100.2"

_TABLES: Final = ("iptables", "ip6tables")
_ALLOW_PUBLISHED: Final = ("DOCKER-USER", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")

_COMMON: Final = """
import socket, sys
kinds = {"tcp": (socket.SOCK_STREAM, 6), "udp": (socket.SOCK_DGRAM, 17), "sctp": (socket.SOCK_STREAM, 132)}
protocol, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
sock = socket.socket(family, *kinds[protocol])
"""
_SERVER: Final = f"""{_COMMON}
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind((address, port))
if protocol != "udp":
    sock.listen()
print("listening", flush=True)
while True:
    if protocol == "udp":
        _, peer = sock.recvfrom(100)
        sock.sendto(sys.argv[4].encode(), peer)
    else:
        connection, _ = sock.accept()
        connection.sendall(sys.argv[4].encode())
        connection.close()
"""
_CLIENT: Final = f"""{_COMMON}
sock.settimeout(3)
sock.connect((address, port))
if protocol == "udp":
    sock.send(b"hello")
print(sock.recv(100).decode())
"""
_RECEIVER: Final = """
import socket, sys, time
listening = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("listening", flush=True)
connection, _ = listening.accept()
begun = time.monotonic()
while connection.recv(65536):
    pass
print("seconds", time.monotonic() - begun, flush=True)
"""
_SENDER: Final = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30) as connection:
    connection.sendall(bytes(int(sys.argv[3])))
"""


@contextmanager
def serving(
    lab: Lab, where: Container | None, port: int, *, protocol: str = "tcp", ipv6: bool = False
) -> Iterator[None]:
    """Run a server in a container, or on the host (None); it answers with the container's name, or `host`."""
    name = where.name if where is not None else "host"
    address = "::" if ipv6 else "0.0.0.0"
    process = lab.spawn(*_into(where), sys.executable, "-c", _SERVER, protocol, address, str(port), name)
    try:
        wait_until(lambda: "listening" in process.tail(), f"server on {port}/{protocol}", 10.0)
        yield
    finally:
        process.kill()
        process.wait()


def ask(
    lab: Lab, where: Container | Sequence[str] | None, address: str, port: int, *, protocol: str = "tcp"
) -> str | None:
    """Connect from a container, the host (None), or through a command; return the answer, None without one."""
    prefix = _into(where) if isinstance(where, Container) or where is None else tuple(where)
    done = lab.run(*prefix, sys.executable, "-c", _CLIENT, protocol, address, str(port), check=False)
    return done.stdout.strip() or None


def time_to_send(
    lab: Lab, sender: Container | None, receiver: Container | None, *, address: str, port: int, size: int
) -> float:
    """Send `size` bytes by TCP from a container, or the host (None), to another; return the seconds it takes."""
    process = lab.spawn(*_into(receiver), sys.executable, "-c", _RECEIVER, str(port))
    try:
        wait_until(lambda: "listening" in process.tail(), f"receiver on {port}", 10.0)
        lab.run(*_into(sender), sys.executable, "-c", _SENDER, address, str(port), str(size))
        process.wait()  # its output may come in pieces: it is whole when the process has ended
        return float(process.tail().split()[-1])
    finally:
        process.kill()
        process.wait()


@contextmanager
def outside(lab: Lab) -> Iterator[Sequence[str]]:
    """Connect another host to the lab's, at `OUTSIDE_IP`; gives the prefix of a command that runs there.

    Published ports are allowed as in docs/recipes.md: Docker drops traffic to ports that it has not published itself.
    """
    lab.run("ip", "netns", "add", "outside")
    tables_with_chain = [tables for tables in _TABLES if _has_chain(lab, tables)]
    for tables in tables_with_chain:
        lab.run(tables, "-I", *_ALLOW_PUBLISHED)
    try:
        lab.run("ip", "link", "add", "wire0", "type", "veth", "peer", "name", "eth0", "netns", "outside")
        lab.run("ip", "address", "add", f"{HOST_IP}/24", "dev", "wire0")
        lab.run("ip", "link", "set", "wire0", "up")
        there = ("ip", "netns", "exec", "outside")
        lab.run(*there, "ip", "address", "add", f"{OUTSIDE_IP}/24", "dev", "eth0")
        lab.run(*there, "ip", "link", "set", "eth0", "up")
        yield there
    finally:
        for tables in tables_with_chain:
            lab.run(tables, "-D", *_ALLOW_PUBLISHED, check=False)
        lab.run("ip", "link", "del", "wire0", check=False)
        lab.run("ip", "netns", "del", "outside")


def _has_chain(lab: Lab, tables: str) -> bool:
    """Return whether Docker has the chain: for IPv6 only if configured, and not if its rules are those of nftables."""
    return lab.run("sh", "-c", f"{tables} -n -L {_ALLOW_PUBLISHED[0]}", check=False).returncode == 0


def _into(where: Container | None) -> tuple[str, ...]:
    if where is None:
        return ()
    key = get_str(get_object(where.inspect(), "NetworkSettings"), "SandboxKey")
    if not key:
        raise LabError(f"container {where.name} does not run")
    return ("nsenter", f"--net={key}", "--")
