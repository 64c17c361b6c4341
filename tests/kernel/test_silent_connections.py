# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Strangers who only connect, to the port for metrics, neither lock Docker out nor fill log and memory."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from tests.kernel.daemon_process import RunningDaemon, free_port, running_daemon
from tests.lab.waiting import wait_until

DESCRIPTORS: Final = 256
SILENT: Final = 400
"""More than the daemon may have descriptors."""

FEW: Final = 140
"""Fewer than `KEPT` connections of a listener and the daemon itself need."""

KEPT: Final = 128
"""As many of a listener's connections wait for a request."""


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


def test_descriptors_are_kept_for_docker(tmp_path: Path) -> None:
    """A quarter of them: connections to other listeners that would need these are closed at once."""
    port = free_port()
    with running_daemon(tmp_path, "--metrics-listen", f"127.0.0.1:{port}", descriptors=FEW) as daemon:
        with silent_connections(port):
            wait_until(lambda: "too few descriptors are free" in daemon.log, "the reserve")
            for _ in range(20):
                assert daemon.is_answering()
            assert open_descriptors(daemon) <= FEW * 3 // 4 + 1
        assert "listener.not_accepted" not in daemon.log


def test_junk_is_one_line_of_the_log(tmp_path: Path) -> None:
    """However much of it there is: a line at most once a minute, and no traceback."""
    port = free_port()
    with running_daemon(tmp_path, "--metrics-listen", f"127.0.0.1:{port}") as daemon:
        before = len(daemon.log.splitlines())
        for _ in range(50):
            junk(port, b"POST / HTTP/9.9\r\nHost: x\r\n\r\n")
        wait_until(lambda: "listener.bad_request" in daemon.log, "the line")
        assert daemon.is_answering()
        logged = daemon.log.splitlines()[before:]
    assert len(logged) == 1, logged
