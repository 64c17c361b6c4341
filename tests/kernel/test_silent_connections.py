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

DESCRIPTORS: Final = 256
SILENT: Final = 400
"""More than the daemon may have descriptors."""

KEPT: Final = 32
"""As many connections for metrics there may be at a time."""


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
