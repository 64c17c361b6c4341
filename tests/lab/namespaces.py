# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The private namespaces of one lab (net, mount, pid, uts, ipc), and how to run a process in them.

They exist as long as their owner keeps them open: see `keeper.py`.
"""

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from tests.lab.errors import CommandFailed, LabError
from tests.lab.programs import SEARCH_PATH

Stream = int | IO[bytes] | None

_CLONE_NEWPID: Final = 0x20000000  # include/uapi/linux/sched.h; os.setns comes with Python 3.12
_CLOSE_LIMIT_S: Final = 25.0  # beyond the keeper's own two limits
_REPOSITORY: Final = Path(__file__).parents[2]


class Namespaces:
    """A file tree, a network and a process tree of its own, in which processes can be started.

    Args:
        programs: Directories, as in PATH, whose programs replace the machine's inside.

    Attributes:
        name: The unique name of the lab's host and control groups.
        init_pid: The machine's process ID of the lab's process 1.

    Raises:
        LabError: They could not be made; the message has the kernel's reason. Nothing is left.
    """

    def __init__(self, programs: str = "") -> None:
        self._programs = f"{programs}:" if programs else ""
        self.name = f"cni-bridge-lab-{secrets.token_hex(4)}"
        kept = {str(path.resolve()) for path in (Path.cwd(), _REPOSITORY, Path.home(), Path(tempfile.gettempdir()))}
        script = Path(__file__).with_name("keeper.py")
        # A session of its own: Ctrl-C and signals to the caller's process group do not keep it from cleaning up.
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), self.name, str(os.getpid()), *sorted(kept)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            env={"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8"},
            text=True,
        )
        assert self._keeper.stdout is not None
        first, second = self._keeper.stdout.readline(), self._keeper.stdout.readline()
        if second != "ready\n":
            _, stderr = self._keeper.communicate()
            raise LabError(f"the namespaces of a lab could not be made:\n{stderr.strip()}")
        self.init_pid = int(first)
        self._pid_namespace = os.open(f"/proc/{self.init_pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """End every process inside and wait until nothing is left. The caller must have reaped what it started.

        Raises:
            LabError: Something cannot be removed; the message names it.
        """
        os.close(self._pid_namespace)
        _, stderr = self._keeper.communicate(timeout=_CLOSE_LIMIT_S)  # closes its stdin, which is the order to end
        if self._keeper.returncode != 0:
            status = self._keeper.returncode
            raise LabError(f"the keeper of {self.name} ended with status {status}; left behind:\n{stderr.strip()}")

    def enter(self, init_pid: int) -> None:
        """Start further processes in the namespaces of another process 1, whose PID namespace is within ours."""
        os.close(self._pid_namespace)
        self.init_pid = init_pid
        self._pid_namespace = os.open(f"/proc/{init_pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def path(self, inside: str) -> Path:
        """Return the machine's path of an absolute path of the lab, e.g. to open a file or to connect to a socket.

        Symbolic links to absolute paths (`/var/run`) would lead out of the lab: use their targets.
        """
        return Path(f"/proc/{self.init_pid}/root{inside}")

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a process inside: the caller's, without its settings of Docker and CNI.

        The interpreter's directory is the first in PATH, so that the virtual environment's commands are found.
        """
        foreign = ("DOCKER_", "CNI_", "NETCONFPATH", "NOTIFY_SOCKET", "LISTEN_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        env["PATH"] = f"{Path(sys.executable).parent}:{self._programs}{SEARCH_PATH}"
        env["DOCKER_CONFIG"] = "/run/lab/docker-config"  # an empty one: the caller's may name another Docker host
        env["CNI_BRIDGE_LAB"] = "1"
        return env | dict(extra or {})

    def popen(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
        foreground: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a process inside, in the caller's working directory. The result is that process itself.

        With `foreground` it stays in the caller's session, with its terminal; otherwise it gets a session of its own.
        """

        def start() -> subprocess.Popen[str]:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(self._pid_namespace, _CLONE_NEWPID) != 0:
                raise OSError(ctypes.get_errno(), f"setns of the lab {self.name}")
            return subprocess.Popen(
                [
                    *("nsenter", f"--target={self.init_pid}", "--net", "--mount", "--uts", "--ipc"),
                    *(f"--wdns={Path.cwd()}", "--", *argv),
                ],
                env=self.environment(env),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=not foreground,
                text=True,
                errors="replace",
            )

        # Only children of the thread that called setns enter a PID namespace: hence a short thread.
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(start).result()

    def run(
        self,
        argv: Sequence[str],
        *,
        check: bool = True,
        input: str | None = None,  # noqa: A002 as in subprocess.run
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and return its result with its output.

        Raises:
            CommandFailed: Its exit status is not 0, unless `check` is false.
            LabError: It took longer than `timeout_s`; it and its process group are killed.
        """
        pipe = subprocess.PIPE
        process = self.popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
        with process:
            try:
                stdout, stderr = process.communicate(input, timeout=timeout_s)
            except BaseException as exc:
                os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(exc, subprocess.TimeoutExpired):
                    raise
                raise LabError(f"{' '.join(argv)}: no end after {timeout_s:g} s") from exc
        if check and process.returncode != 0:
            raise CommandFailed(argv, process.returncode, stdout, stderr)
        return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)
