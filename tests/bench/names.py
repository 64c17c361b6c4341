# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the responder of guarded networks adds to a query: beside the same upstream, asked directly.

`python -m tests.lab --no-dockerd -- python -m tests.bench.names`. Both ways take turns in one run. The upstream is a
process on the loopback network that answers at once; the host asks it directly, a container through the responder. Then
a thousand containers ask for fifty names each, which shows the memory: they are addresses of one namespace.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from statistics import quantiles
from typing import Final

import dns.message

from cni_egress.enforcement import Enforcement
from tests.egress.internet import open_inside
from tests.egress.responder_host import RESPONDER, Container, Host, guarded_host
from tests.egress.upstream import FakeUpstream

ROUNDS: Final = 2000
CONTAINERS: Final = 1000
NAMES: Final = 50
FREED_S: Final = 2.0
"""How long the kernel may take to free what is deleted."""
_HEADER_BYTES: Final = 12
_QUESTION_BYTES: Final = 4
_SERVE: Final = "--serve"


def serve() -> None:
    """Answer each query for `known…` with a TTL of a minute, others with 0, and an address that depends on the name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        print(sock.getsockname()[1], flush=True)
        while True:
            data, peer = sock.recvfrom(4096)
            end = data.index(b"\0", _HEADER_BYTES) + 1 + _QUESTION_BYTES
            ttl = 60 if data[_HEADER_BYTES + 1 :].startswith(b"known") else 0
            address = b"\x0b" + hash(data[_HEADER_BYTES:end]).to_bytes(8, "big", signed=True)[:3]
            head = data[:2] + b"\x81\x80\0\1\0\1\0\0\0\0"
            sock.sendto(
                head + data[_HEADER_BYTES:end] + b"\xc0\x0c\0\1\0\1" + ttl.to_bytes(4, "big") + b"\0\4" + address, peer
            )


@contextmanager
def upstream_process() -> Iterator[FakeUpstream]:
    """Run `serve` in another process."""
    command = [sys.executable, "-m", "tests.bench.names", _SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield FakeUpstream(port=int(process.stdout.readline()))
        finally:
            process.kill()


def timed(sock: socket.socket, query: bytes) -> float:
    """Return how long the response to a query takes, in milliseconds."""
    began = time.perf_counter()
    sock.send(query)
    sock.recv(4096)
    return (time.perf_counter() - began) * 1000


def row(title: str, samples: list[float]) -> None:
    """Print the percentiles of samples."""
    cuts = quantiles(samples, n=100, method="inclusive")
    print(f"{title:48} {cuts[49]:8.2f} {cuts[98]:8.2f}")


def query_for(name: str) -> bytes:
    """Return a query."""
    return dns.message.make_query(name, "A", use_edns=0, payload=1232).to_wire()


def compare(port: int, agent: Container) -> None:
    """Print a table: names that the responder knows, and names that are new to it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as direct,
        open_inside(agent.namespace, socket.AF_INET, socket.SOCK_DGRAM) as guarded,
    ):
        direct.connect(("127.0.0.1", port))
        guarded.connect((RESPONDER, 53))
        for sock in (direct, guarded):
            sock.settimeout(5)
        print(f"{'milliseconds':48} {'p50':>8} {'p99':>8}")
        for title, names in (
            ("known", [f"known{number % NAMES}.bench.example" for number in range(ROUNDS)]),
            ("new", [f"new{number}.bench.example" for number in range(ROUNDS)]),
        ):
            pairs = [(timed(direct, query_for(name)), timed(guarded, query_for(name))) for name in names]
            row(f"{title}: the upstream asked directly", [one for one, _ in pairs])
            row(f"{title}: through the responder", [two for _, two in pairs])
            row(f"{title}: the difference of each pair", [two - one for one, two in pairs])


def add_neighbours(host: Host, first: Container) -> list[str]:
    """Guard as many containers as `CONTAINERS` says behind the link of the first one; return their addresses."""
    found = [f"10.66.{1 + number // 250}.{1 + number % 250}" for number in range(CONTAINERS)]
    subprocess.run(["ip", "route", "add", "10.66.0.0/16", "dev", first.record.link], check=True)
    first.namespace.ip(*(f"address add {address}/32 dev eth0" for address in found))
    with host.records.locked(), Enforcement(host.records) as enforcement:
        for address in found:
            enforcement.protect(replace(first.record, container_id=address, addresses=(ip_address(address),)))
    return found


def ask_many(first: Container, addresses: Sequence[str]) -> float:
    """Ask for names of its own from each address; return the seconds."""
    began = time.perf_counter()
    for address in addresses:
        with open_inside(first.namespace, socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
            sock.connect((RESPONDER, 53))
            sock.settimeout(5)
            for number in range(NAMES):
                timed(sock, query_for(f"known{number}.{address}.bench.example"))
    return time.perf_counter() - began


def kernel_mib() -> float:
    """Return what the elements of names take in the kernel: what is free when they are gone, of its own objects."""

    def slab_kib() -> int:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("SUnreclaim:", "VmallocUsed:")))

    subprocess.run(["nft", "flush set inet cni-egress names6"], check=True)  # it has loaded its libraries
    before = slab_kib()
    subprocess.run(["nft", "flush set inet cni-egress names4"], check=True)
    time.sleep(FREED_S)
    return (before - slab_kib()) / 1024


def memory_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


def processor_ms(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    with upstream_process() as upstream, guarded_host(upstream) as host, ExitStack() as stack:
        host.start_daemon()
        assert host.daemon is not None
        pid = host.daemon.pid
        print(f"resident at the start: {memory_mib(pid):.1f} MiB")
        first = stack.enter_context(host.container(10, ["*.bench.example"]))
        before = processor_ms(pid)
        compare(upstream.port, first)
        print(f"processor time of the daemon: {(processor_ms(pid) - before) / 2 / ROUNDS:.2f} ms for each query")
        spent = ask_many(first, add_neighbours(host, first))
        print(f"{CONTAINERS} containers with {NAMES} names each: {spent:.0f} s; resident: {memory_mib(pid):.1f} MiB")
        host.stop_daemon()
        print(f"in the kernel: {kernel_mib():.1f} MiB")


if __name__ == "__main__":
    serve() if _SERVE in sys.argv else main()
