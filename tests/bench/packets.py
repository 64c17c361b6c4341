# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the guard of a network costs packets: connections and throughput beside a bridge that has none.

`python -m tests.lab --no-dockerd -- python -m tests.bench.packets`. Both ways take turns in one run, from a container
through the host to a server behind its uplink.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median, quantiles
from typing import Final

from cni_egress.enforcement import Enforcement
from cni_egress.records import Record
from tests.egress.internet import open_inside
from tests.egress.responder_host import Host, guarded_host
from tests.egress.upstream import FakeUpstream
from tests.kernel.namespace import Namespace, made_namespace

CONTAINERS: Final = 1000
CONNECTIONS: Final = 3000
TURNS: Final = 7
TURN_S: Final = 2.0
SERVER: Final = "11.0.0.9"
_PORT: Final = 443
_SINK: Final = 8443
_BLOCK: Final = bytes(1 << 20)
_PLAIN: Final = """
ip link add plain0 type bridge
ip address add 10.67.0.1/24 dev plain0
ip link set plain0 up
ip link add plain1 type veth peer name eth0 netns plain
ip link set plain1 master plain0 up
"""

Opener = Callable[[], socket.socket]


@contextmanager
def plain_container() -> Iterator[Namespace]:
    """Give a namespace on a bridge without a guard."""
    with made_namespace("plain") as namespace:
        subprocess.run(["sh", "-euc", _PLAIN], check=True)
        namespace.ip("link set lo up", "link set eth0 up", "address add 10.67.0.2/24 dev eth0")
        namespace.ip("route add default via 10.67.0.1")
        try:
            yield namespace
        finally:
            subprocess.run(["sh", "-uc", "ip link delete plain1; ip link delete plain0"], check=False)


@contextmanager
def accepting(listener: socket.socket) -> Iterator[None]:
    """Accept connections, and close them, for the length of the block."""

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.close()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def sink(host: Host) -> Iterator[None]:
    """Run a process that receives whatever comes, for the length of the block."""
    with open_inside(host.internet, socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("0.0.0.0", _SINK))
        listener.listen()
        command = [sys.executable, "-m", "tests.bench.packets", "--sink", str(listener.fileno())]
        with subprocess.Popen(command, pass_fds=[listener.fileno()]) as process:
            try:
                yield
            finally:
                process.kill()


def receive(number: int) -> None:
    """Receive whatever comes."""
    block = bytearray(1 << 20)
    with socket.socket(fileno=number) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                while connection.recv_into(block):
                    pass


def add_neighbours(host: Host, like: Record) -> None:
    """Guard as many other containers as `CONTAINERS` says, without namespaces: what they cost others are elements."""
    with host.records.locked(), Enforcement(host.records) as enforcement:
        for number in range(1, CONTAINERS):
            addresses = (like.addresses[0] + 256 * (1 + number % 250) + number // 250, like.addresses[1] + number)
            mac = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
            enforcement.protect(
                replace(like, container_id=f"n{number}", port=f"n{number}", mac=mac, addresses=addresses)
            )


def connect_us(opened: Opener) -> float:
    """Return how long a connection takes, in microseconds."""
    with opened() as sock:
        began = time.perf_counter()
        sock.connect((SERVER, _PORT))
        return (time.perf_counter() - began) * 1e6


def send_gbit(opened: Opener) -> float:
    """Return how much is sent for some seconds, in gigabits a second."""
    sent = 0
    with opened() as sock:
        sock.connect((SERVER, _SINK))
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < TURN_S:
            sent += sock.send(_BLOCK)
    return sent * 8 / spent / 1e9


def compare(ways: dict[str, Opener]) -> None:
    """Measure both ways, and print."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(CONNECTIONS):
        for name, opened in ways.items():
            samples[name].append(connect_us(opened))
    print(f"{'a connection, in microseconds':40} {'p50':>8} {'p90':>8}")
    for name, found in samples.items():
        cuts = quantiles(found, n=10, method="inclusive")
        print(f"{name:40} {cuts[4]:8.1f} {cuts[8]:8.1f}")
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, opened in ways.items():
            rates[name].append(send_gbit(opened))
    print(f"{'TCP, in gigabits a second':40} {'median':>8} {'least':>8} {'most':>8}")
    for name, found in rates.items():
        print(f"{name:40} {median(found):8.2f} {min(found):8.2f} {max(found):8.2f}")
    plain, guarded = (median(found) for found in rates.values())
    print(f"guarded, of the other: {guarded / plain:.3f}")


def main() -> None:
    """Make the host, and measure."""
    with guarded_host(FakeUpstream()) as host, ExitStack() as stack:
        allow = [f"{SERVER}:{_PORT}", f"{SERVER}:{_SINK}"]
        container = stack.enter_context(host.container(10, allow))
        add_neighbours(host, container.record)
        plain = stack.enter_context(plain_container())
        stack.enter_context(accepting(host.listeners[_PORT]))
        stack.enter_context(sink(host))
        inside = container.namespace
        compare(
            {
                "a bridge without a guard": lambda: open_inside(plain, socket.AF_INET, socket.SOCK_STREAM),
                f"one of {CONTAINERS} guarded containers": lambda: open_inside(
                    inside, socket.AF_INET, socket.SOCK_STREAM
                ),
            }
        )


if __name__ == "__main__":
    if "--sink" in sys.argv:
        receive(int(sys.argv[2]))
    else:
        main()
