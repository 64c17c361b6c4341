# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon as a process of its own, in the namespaces of the test process; no engine answers it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.unix_http import is_answering, request
from tests.lab.waiting import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningDaemon:
    """A daemon that answers.

    Attributes:
        directory: Everything of it is in here: its state, its run directory and its socket.
        process: Its process.
    """

    directory: Path
    process: "subprocess.Popen[bytes]"

    @property
    def socket(self) -> Path:
        """The plugin socket."""
        return self.directory / "plugin.sock"

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self.directory / "run"

    @property
    def admin(self) -> Path:
        """The admin socket."""
        return self.run_dir / "admin.sock"

    @property
    def log(self) -> str:
        """What it has logged."""
        return _log_path(self.directory).read_text("utf-8")

    def is_answering(self) -> bool:
        """Return whether a call of Docker is answered, within seconds."""
        return is_answering(self.socket, "POST", "/Plugin.Activate")

    def is_answering_operators(self) -> bool:
        """Return whether a request of an operator is answered, within seconds."""
        try:
            return request(self.admin, "GET", "/version")[0] == 200
        except OSError:
            return False


@contextmanager
def running_daemon(
    directory: Path,
    *options: str,
    descriptors: int | None = None,
    env: Mapping[str, str] | None = None,
    stderr: int | None = None,
) -> Iterator[RunningDaemon]:
    """Run the daemon during the block; stop it at the end, and check that it ends without an error.

    Args:
        directory: A directory for its files; a second run in the same one has the same state.
        options: Further options of `cni-bridge serve`.
        descriptors: The limit of open files; None for that of this process.
        env: Further variables.
        stderr: Where it logs; None for a file that `RunningDaemon.log` reads.
    """
    directory.mkdir(exist_ok=True)
    limit = () if descriptors is None else ("prlimit", f"--nofile={descriptors}:{descriptors}")
    command = (
        *(*limit, sys.executable, "-m", "cnm_bridge", "serve", "--log-format", "json"),
        *("--socket", str(directory / "plugin.sock"), "--state-dir", str(directory / "state")),
        *("--run-dir", str(directory / "run"), "--docker-host", f"unix://{directory}/no-docker.sock", *options),
    )
    with _log_path(directory).open("ab") as log:
        process = subprocess.Popen(command, stderr=log if stderr is None else stderr, env={**os.environ, **(env or {})})
    try:
        daemon = RunningDaemon(directory=directory, process=process)
        wait_until(lambda: daemon.is_answering() or process.poll() is not None, "the daemon is ready")
        assert process.poll() is None, daemon.log
        yield daemon
        process.terminate()
        assert process.wait(30) == 0, daemon.log
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _log_path(directory: Path) -> Path:
    return directory / "log"
