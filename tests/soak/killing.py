# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Kills or stops daemons and plugins in a lab, and restarts the daemons; after a reboot."""

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cni_bridge_spec import as_object, find_str, get_objects, get_str, parse_json
from tests.lab import Lab
from tests.lab.programs import CNI_BIN_DIRS
from tests.lab.reboot import end_boot
from tests.soak.docker_calls import PARTNER, SERVER
from tests.soak.docker_view import DockerView
from tests.soak.lists import DOCKERS_BRIDGE
from tests.soak.operations import Kill, Round
from tests.soak.surroundings import Surroundings

START_LIMIT_S: Final = 60.0
STATE: Final = "/var/lib/cni-bridge"

_BOOT_LIMIT_S: Final = 300.0
"""The daemon may tear down first what was there before; dockerd starts its containers before it answers."""
_STOPPED_S: Final = 3.0
"""How long a stopped process stands still: less than a plugin may take."""

_FIRST_PROCESSES: Final = (SERVER, PARTNER, (b"runc", b"init"))
"""Of containers: their programs, and what runs before; a container that Docker has lost may stay so."""


class Killing:
    """Carries out the kills of rounds."""

    def __init__(self, lab: Lab, surroundings: Surroundings, daemon_options: Sequence[str]) -> None:
        self._lab = lab
        self._surroundings = surroundings
        self._daemon_options = tuple(daemon_options)
        self._reboots = 0

    def carry_out(self, round_: Round, is_over: Callable[[], bool]) -> bool:
        """Kill what the round says and restart it; return False if no plugin was seen running until `is_over()`."""
        match round_.kill:
            case Kill.DAEMON:
                self._restart_daemon()
            case Kill.DOCKERD:
                self.restart_dockerd()
            case Kill.BOTH:
                self._lab.stop_dockerd(signal.SIGKILL)
                self._restart_daemon()
                self._lab.start_dockerd(timeout_s=START_LIMIT_S)
            case Kill.REBOOT:
                self._reboot()
            case Kill.STOP_DAEMON:
                assert self._lab.daemon is not None
                self._lab.daemon.kill(signal.SIGSTOP)
                time.sleep(_STOPPED_S)
                self._lab.daemon.kill(signal.SIGCONT)
            case Kill.STOP_PLUGIN if plugin := self._find_plugin(round_.plugin, is_over):
                self._signal(plugin, "STOP")
                time.sleep(_STOPPED_S)
                self._signal(plugin, "CONT")
            case Kill.PLUGIN if plugin := self._find_plugin(round_.plugin, is_over):
                self.kill(plugin)
            case _:
                return False
        return True

    def kill(self, process: int) -> None:
        """Kill a process of the lab, by its ID there."""
        self._signal(process, "KILL")

    def kill_all(self, processes: Iterable[int]) -> None:
        """Kill processes."""
        for process in processes:
            self.kill(process)

    def lost_containers(self, docker: DockerView) -> frozenset[int]:
        """Return the first processes of running containers that Docker does not have."""
        known = {found.process for found in docker.containers.values()}
        return frozenset(process for process in self._containers() if process not in known)

    def stray_links(self) -> frozenset[str]:
        """Return the links of Docker's own drivers that should be in a container and are in the host namespace."""
        return find_stray_links(self._lab.run("ip", "-json", "-details", "link", "show").stdout)

    def delete_link(self, name: str) -> None:
        """Delete a link of the host namespace, unless it is gone."""
        self._lab.run("ip", "link", "del", name, check=False)

    def _signal(self, process: int, name: str) -> None:
        self._lab.run("busybox", "kill", f"-{name}", str(process), check=False)

    def _reboot(self) -> None:
        """End everything, and start the daemon and dockerd at the same time."""
        self._reboots += 1
        self._lab.stop_dockerd(signal.SIGKILL)
        self._lab.stop_daemon(signal.SIGKILL)
        end_boot(self._lab, self._reboots)
        self._surroundings.start()
        with ThreadPoolExecutor(1) as thread:
            daemon = thread.submit(self._lab.start_daemon, *self._daemon_options, timeout_s=_BOOT_LIMIT_S)
            self._lab.start_dockerd(timeout_s=_BOOT_LIMIT_S)
            daemon.result()

    def _restart_daemon(self) -> None:
        self._lab.stop_daemon(signal.SIGKILL)
        self._lab.start_daemon(*self._daemon_options, timeout_s=START_LIMIT_S)

    def restart_dockerd(self) -> None:
        """Kill dockerd and start it."""
        self._lab.stop_dockerd(signal.SIGKILL)
        self._lab.start_dockerd(timeout_s=START_LIMIT_S)

    def _find_plugin(self, number: int, is_over: Callable[[], bool]) -> int | None:
        """Return the plugin with this number, in the order in which running plugins are seen."""
        seen: list[int] = []
        while not is_over():
            for process in self._plugins():
                if process not in seen:
                    seen.append(process)
                    if len(seen) > number:
                        return process
            time.sleep(0.001)
        return None

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
            if is_of_container(words):
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


def is_of_container(words: Sequence[bytes]) -> bool:
    """Return whether the command line of a process is that of a container's first process."""
    return any(tuple(words[: len(program)]) == program for program in _FIRST_PROCESSES)


def find_stray_links(printed: str) -> frozenset[str]:
    """Return the links of Docker's own drivers in the output of `ip -json -details link show` in the host namespace.

    That is a port of Docker's bridge whose other end is in the same namespace, and a `macvlan` that is not one of ours.
    """
    links = get_objects({"links": parse_json(printed.encode())}, "links")
    return frozenset(
        get_str(link, "ifname")
        for link in links
        if (find_str(link, "master") == DOCKERS_BRIDGE and "link_netnsid" not in link)
        or (
            find_str(as_object(link.get("linkinfo", {}), "linkinfo"), "info_kind") == "macvlan"
            and not get_str(link, "ifname").startswith("cni")
        )
    )
