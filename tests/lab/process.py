# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A background process of a lab: dockerd, the daemon under test, or a program that a test starts."""

import contextlib
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.lab.errors import LabError
from tests.lab.namespaces import Namespaces
from tests.lab.waiting import wait_until

_TAIL_LINES: Final = 25


class Process:
    """A process of a lab. Its output goes to `/run/lab/NAME.log` in the lab.

    Attributes:
        name: Its unique name in messages.
        argv: The command.
        pid: The machine's process ID.
    """

    def __init__(
        self, namespaces: Namespaces, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self._log_path = namespaces.path(f"/run/lab/{name}.log")
        self._log = ""
        with self._log_path.open("xb") as log:
            self._popen = namespaces.popen(argv, env=env, stdout=log, stderr=log)
        self.pid = self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for the signal that ended it; None while it runs."""
        return self._popen.poll()

    def log(self) -> str:
        """Return what it has printed so far, also after the lab has ended."""
        with contextlib.suppress(OSError):  # the lab has ended: what was read last is complete
            self._log = self._log_path.read_text(encoding="utf-8", errors="replace")
        return self._log

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.log().splitlines()[-lines:])

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """Send it a signal, unless it has ended."""
        self._popen.send_signal(signal_number)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Wait for its end and return its exit status, negative for the signal that ended it.

        Raises:
            LabError: It still runs after `timeout_s`, and is not killed.
        """
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise LabError(f"{self.name} has not ended within {timeout_s:g} s; its log ends:\n{self.tail()}") from exc

    def wait_ready(self, is_ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `is_ready()`.

        Raises:
            LabError: It ended before that, or `timeout_s` has passed; the message has the end of its log.
        """

        def is_ready_or_ended() -> bool:
            return is_ready() or self.returncode is not None

        try:
            wait_until(is_ready_or_ended, f"{self.name} is ready", timeout_s)
        except LabError as exc:
            raise LabError(f"{exc}; its log ends:\n{self.tail()}") from exc
        if self.returncode is not None and not is_ready():
            raise LabError(f"{self.name} ended with status {self.returncode}; its log ends:\n{self.tail()}")

    def close(self) -> None:
        """Kill it, reap it, keep its log."""
        self.kill()
        self.wait()
        self.log()
