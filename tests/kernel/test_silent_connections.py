# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Strangers who only connect, to the port for metrics, neither lock Docker out nor fill log and memory."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from cni_bridge_spec import get_str
from cnm_bridge.core.settings import Settings
from cnm_bridge.system.sockets import metrics_listener
from tests.kernel.daemon_process import RunningDaemon, free_port, running_daemon
from tests.kernel.namespace import Namespace

DESCRIPTORS: Final = 256
SILENT: Final = 400
"""More than the daemon may have descriptors."""

KEPT: Final = 32
"""As many connections for metrics there may be at a time."""


@contextmanager
def silent_connections(port: int) -> Iterator[list[socket.socket]]:
    """Open connections, as fast as they are accepted, and send nothing."""
    with ExitStack() as stack:
        connections = []
        for _ in range(SILENT):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            connections.append(connection)
        yield connections


def memory_kib(daemon: RunningDaemon) -> int:
    """Return the resident memory of a daemon."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def open_descriptors(daemon: RunningDaemon) -> int:
    """Return the number of a daemon's descriptors."""
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


def test_docker_is_answered_beside_silent_connections(tmp_path: Path) -> None:
    """More of them than there are descriptors: plugin socket and admin socket answer, and the log stays small."""
    port = free_port()
    with running_daemon(tmp_path, "--metrics-listen", f"127.0.0.1:{port}", descriptors=DESCRIPTORS) as daemon:
        before, descriptors = memory_kib(daemon), open_descriptors(daemon)
        with silent_connections(port):
            for _ in range(20):
                assert daemon.is_answering()
            assert daemon.is_answering_operators()
            assert open_descriptors(daemon) - descriptors < KEPT + 10
            assert memory_kib(daemon) - before < 80 << 10
            assert len(daemon.log) < 10_000, daemon.log[:10_000]
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            assert b"cni_bridge_endpoints" in answer.read()
    assert "Traceback" not in daemon.log


_CONNECT: Final = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"


@pytest.fixture(name="container")
def on_a_bridge(host: Namespace, sandbox: Namespace) -> Iterator[Namespace]:
    """A container that sends packets for 127.0.0.1 to the host, which lets them in as `portmap` makes it do."""
    host.ip(
        "link add cni0 type bridge",
        "address add 10.77.0.1/24 dev cni0",
        f"link add outside type veth peer name eth0 netns {sandbox.path}",
        "link set outside master cni0 up",
        "link set cni0 up",
        "link set lo up",
    )
    host.run("sysctl -qw net.ipv4.conf.cni0.route_localnet=1")
    sandbox.ip("link set lo down", "address add 10.77.0.2/24 dev eth0", "link set eth0 up")
    sandbox.run("sysctl -qw net.ipv4.conf.eth0.route_localnet=1")
    sandbox.ip("route add 127.0.0.1 via 10.77.0.1 dev eth0 src 10.77.0.2")
    # The host would ask for this address as 127.0.0.1, which the container's kernel does not answer.
    host.ip(f"neighbour add 10.77.0.2 lladdr {get_str(sandbox.link('eth0'), 'address')} dev cni0")
    yield sandbox
    host.ip("link delete cni0", "link delete outside")


def connects(container: Namespace, port: int) -> bool:
    """Return whether a container reaches a port of the host's 127.0.0.1."""
    argv = ("nsenter", f"--net={container.path}", sys.executable, "-c", _CONNECT, str(port))
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "ConnectionRefusedError" in done.stderr, done.stderr
    return done.returncode == 0


def test_a_container_does_not_reach_it(container: Namespace) -> None:
    """Another server on 127.0.0.1 is reached; the daemon's is refused, and answers the host itself."""
    port = free_port()
    with ExitStack() as stack:
        other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(metrics_listener(Settings(metrics_listen=f"127.0.0.1:{port}")))
        assert connects(container, other.getsockname()[1])
        stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
        assert not connects(container, port)
