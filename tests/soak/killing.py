# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Kills daemons and plugins in a lab, and restarts the daemons."""

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.lab import Lab
from tests.lab.programs import CNI_BIN_DIRS
from tests.soak.docker_calls import SERVER
from tests.soak.docker_view import DockerView
from tests.soak.operations import Kill, Round

__all__ = ["START_LIMIT_S", "Killing"]

START_LIMIT_S: Final = 60.0
_STARTING: Final = (b"runc", b"init")
"""A container's first process before its program starts; a container that Docker has lost may stay so."""


class Killing:
    """Carries out the kills of rounds.

    Args:
        lab: The lab.
        daemon_options: The options with which the daemon is restarted.
    """

    def __init__(self, lab: Lab, daemon_options: Sequence[str]) -> None:
        self._lab = lab
        self._daemon_options = tuple(daemon_options)

    def carry_out(self, round_: Round, is_over: Callable[[], bool]) -> bool:
        """Kill what the round says and restart it; return False if no plugin was seen running until `is_over()`."""
        match round_.kill:
            case Kill.DAEMON:
                self._restart_daemon()
            case Kill.DOCKERD:
                self._restart_dockerd()
            case Kill.BOTH:
                self._lab.stop_dockerd(signal.SIGKILL)
                self._restart_daemon()
                self._lab.start_dockerd(timeout_s=START_LIMIT_S)
            case Kill.PLUGIN:
                return self._kill_plugin(round_.plugin, is_over)
        return True

    def kill(self, process: int) -> None:
        """Kill a process of the lab, by its ID there."""
        self._lab.run("busybox", "kill", "-KILL", str(process), check=False)

    def kill_all(self, processes: Iterable[int]) -> None:
        """Kill processes."""
        for process in processes:
            self.kill(process)

    def lost_containers(self, docker: DockerView) -> frozenset[int]:
        """Return the first processes of running containers that Docker does not have."""
        known = {found.process for found in docker.containers.values()}
        return frozenset(process for process in self._containers() if process not in known)

    def _restart_daemon(self) -> None:
        self._lab.stop_daemon(signal.SIGKILL)
        self._lab.start_daemon(*self._daemon_options, timeout_s=START_LIMIT_S)

    def _restart_dockerd(self) -> None:
        self._lab.stop_dockerd(signal.SIGKILL)
        self._lab.start_dockerd(timeout_s=START_LIMIT_S)

    def _kill_plugin(self, number: int, is_over: Callable[[], bool]) -> bool:
        """Kill the plugin with this number, in the order in which running plugins are seen."""
        seen: list[int] = []
        while not is_over():
            for process in self._plugins():
                if process not in seen:
                    seen.append(process)
                    if len(seen) > number:
                        self.kill(process)
                        return True
            time.sleep(0.001)
        return False

    def _plugins(self) -> Iterator[int]:
        for path in self._processes("exe"):
            try:
                program = str(path.readlink())
                is_plugin = program.startswith(CNI_BIN_DIRS) and not self._is_child(path.parent, program)
            except OSError:  # it has just ended
                continue
            if is_plugin:
                yield int(path.parent.name)

    def _containers(self) -> Iterator[int]:
        for path in self._processes("cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:  # it has just ended
                continue
            if words[: len(SERVER)] == [*SERVER] or words[: len(_STARTING)] == [*_STARTING]:
                yield int(path.parent.name)

    def _processes(self, file: str) -> Iterator[Path]:
        """Yield a file of each process; the process may have ended meanwhile."""
        # without a pattern for the file: pathlib would check that it exists, and raise if the process has just ended
        return (process / file for process in self._lab.path("/proc").iterdir() if process.name.isdigit())

    def _is_child(self, process: Path, program: str) -> bool:
        """Return whether a process is one that a plugin has just forked, e.g. to execute iptables.

        If such a process is killed, `firewall` reports success and its rule stays (`cleanupRules` ignores errors). No
        error is reported, and only the plugin knows the rule.
        """
        parent = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]  # proc(5)
        return str((process.parent / parent / "exe").readlink()) == program
