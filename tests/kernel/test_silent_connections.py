# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Strangers who only connect, to any listener, neither lock Docker out nor fill log and memory."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from tests.certificates import certificates_script
from tests.kernel.daemon_process import RunningDaemon, free_port, running_daemon
from tests.lab.waiting import wait_until

DESCRIPTORS: Final = 256
SILENT: Final = 400
"""More than the daemon may have descriptors."""

FEW: Final = 140
"""Fewer than `KEPT` connections of a listener and the daemon itself need."""

KEPT: Final = 128
"""As many of a listener's connections wait for a request, or for a TLS handshake."""


@contextmanager
def silent_connections(port: int, count: int = SILENT) -> Iterator[list[socket.socket]]:
    """Open connections, as fast as they are accepted, and send nothing."""
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            connections.append(connection)
        yield connections


def junk(port: int, data: bytes) -> None:
    """Send something, and read until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(data)
        while connection.recv(65536):
            pass


@pytest.fixture(name="certificates", scope="module")
def made_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the certificates of a daemon, a client and a stranger."""
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(("sh", "-euc", certificates_script("daemon", "docker")), cwd=directory, check=True)
    return directory


def options_of(kind: str, port: int, certificates: Path) -> tuple[str, ...]:
    """Return the options of a daemon that listens there."""
    if kind == "metrics":
        return ("--metrics-listen", f"127.0.0.1:{port}")
    files = ((f"--tls-{name}", str(certificates / file)) for name, file in
             (("cert", "daemon.pem"), ("key", "daemon-key.pem"), ("ca", "ca.pem")))  # fmt: skip
    return ("--listen", f"{kind}://127.0.0.1:{port}", *(word for option in files for word in option))


def memory_kib(daemon: RunningDaemon) -> int:
    """Return the resident memory of a daemon."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


def open_descriptors(daemon: RunningDaemon) -> int:
    """Return the number of a daemon's descriptors."""
    return len(list(Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("kind", ["metrics", "tcp", "https"])
def test_docker_is_answered_beside_silent_connections(tmp_path: Path, certificates: Path, kind: str) -> None:
    """More of them than there are descriptors: plugin socket and admin socket answer, and the log stays small."""
    port = free_port()
    with running_daemon(tmp_path, *options_of(kind, port, certificates), descriptors=DESCRIPTORS) as daemon:
        before, descriptors = memory_kib(daemon), open_descriptors(daemon)
        with silent_connections(port):
            for _ in range(20):
                assert daemon.is_answering()
            assert daemon.is_answering_operators()
            assert open_descriptors(daemon) - descriptors < KEPT + 10
            assert memory_kib(daemon) - before < 80 << 10
            assert len(daemon.log) < 10_000, daemon.log[:10_000]
            if kind == "metrics":
                with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                    assert b"cni_bridge_endpoints" in answer.read()
    assert "Traceback" not in daemon.log


@pytest.mark.parametrize("kind", ["metrics", "tcp", "https"])
def test_descriptors_are_kept_for_docker(tmp_path: Path, certificates: Path, kind: str) -> None:
    """A quarter of them: connections to other listeners that would need these are closed at once."""
    port = free_port()
    with running_daemon(tmp_path, *options_of(kind, port, certificates), descriptors=FEW) as daemon:
        with silent_connections(port):
            wait_until(lambda: "too few descriptors are free" in daemon.log, "the reserve")
            for _ in range(20):
                assert daemon.is_answering()
            assert open_descriptors(daemon) <= FEW * 3 // 4 + 1
        assert "listener.not_accepted" not in daemon.log


def test_a_handshake_that_does_not_begin_is_closed_within_seconds(tmp_path: Path, certificates: Path) -> None:
    """Long before the limit for a request, because the client has shown no certificate."""
    port = free_port()
    with (
        running_daemon(tmp_path, *options_of("https", port, certificates)) as daemon,
        socket.create_connection(("127.0.0.1", port), 15) as silent,
    ):
        assert silent.recv(1) == b""
        assert daemon.is_answering()


@pytest.mark.parametrize("kind", ["metrics", "tcp", "https"])
def test_junk_is_one_line_of_the_log(tmp_path: Path, certificates: Path, kind: str) -> None:
    """However much of it there is: a line at most once a minute, and no traceback."""
    port = free_port()
    with running_daemon(tmp_path, *options_of(kind, port, certificates)) as daemon:
        before = len(daemon.log.splitlines())
        for _ in range(50):
            junk(port, b"POST / HTTP/9.9\r\nHost: x\r\n\r\n")
        wait_until(lambda: "listener.bad_request" in daemon.log, "the line")
        assert daemon.is_answering()
        logged = daemon.log.splitlines()[before:]
    assert len(logged) == 1, logged


@pytest.mark.parametrize(("kind", "count"), [("tcp", 1), ("https", 0)])
def test_a_port_without_tls_is_a_warning(tmp_path: Path, certificates: Path, kind: str, count: int) -> None:
    """Every user of this host can connect to it, and so can containers with the host's network."""
    with running_daemon(tmp_path, *options_of(kind, free_port(), certificates)) as daemon:
        assert daemon.log.count("daemon.listens_without_tls") == count
