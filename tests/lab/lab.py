# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A private Docker host for one test, one demo, one session."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from types import TracebackType
from typing import Final, Self

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, parse_json
from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.connectivity.pair import busybox_tar
from tests.lab import docker_api, unix_http
from tests.lab.connections import Connections
from tests.lab.container import Container
from tests.lab.docker_api import DOCKER_SOCKET
from tests.lab.editions import MACHINE_PLUGINS, Engine, Plugins
from tests.lab.errors import LabError, MissingPrograms
from tests.lab.leftovers import leftovers
from tests.lab.namespaces import Namespaces
from tests.lab.process import Process
from tests.lab.programs import SEARCH_PATH, require
from tests.lab.state import LabState, observe


def image_tar(busybox: Path) -> bytes:
    """Return the file system as a tar.

    Raises:
        MissingPrograms: This busybox needs shared libraries.
    """
    try:
        return busybox_tar(busybox)
    except Refused as exc:
        raise MissingPrograms((str(exc),), ("busybox-static",)) from exc


DAEMON_COMMAND: Final = (sys.executable, "-m", "cnm_bridge", "serve")
PLUGIN_SOCKET: Final = "/run/docker/plugins/cni-bridge.sock"
ADMIN_SOCKET: Final = "/run/cni-bridge/admin.sock"
IMAGE: Final = "busybox"

_NOT_UP: Final = "the lab is not up: use it as `with Lab() as lab:`"


class Lab:
    """A private Docker host; see the package's docstring. It is removed completely at the end of the `with` block.

    Args:
        dockerd: Whether dockerd runs in it from the start.
        engine: Its engine, from `find_engine`; None for the machine's own.
        plugins: The CNI plugins in /usr/lib/cni, from `find_plugins`; None for the machine's own.

    Attributes:
        dockerd: The dockerd started last, with the image `busybox`; None before that.
        daemon: The daemon under test, the one started last; None before that.
        processes: Every background process that was started here, with dockerd and the daemon, oldest first.
    """

    def __init__(self, *, dockerd: bool = True, engine: Engine | None = None, plugins: Plugins | None = None) -> None:
        self.dockerd: Process | None = None
        self.daemon: Process | None = None
        self.processes: list[Process] = []
        self._with_dockerd = dockerd
        self._engine = engine
        self._plugins = plugins
        self._namespaces: Namespaces | None = None
        self._connections: Connections | None = None
        self._dockerd_again: Callable[[], Process] | None = None
        self._daemon_command: Sequence[str] = DAEMON_COMMAND
        self._daemon_again: Callable[[], Process] | None = None

    def __enter__(self) -> Self:
        require(dockerd=self._with_dockerd)
        self._namespaces = Namespaces(self._engine.search_path if self._engine else "")
        try:
            self._connections = Connections(self._namespaces)
            if self._plugins is not None and self._plugins.directory != MACHINE_PLUGINS:
                self.run("mount", "--bind", str(self._plugins.directory), str(MACHINE_PLUGINS))
            if self._with_dockerd:
                self.start_dockerd()
                self.import_image()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the lab and remove everything it made; the logs of `processes` stay readable.

        Raises:
            LabError: Something cannot be removed; the message names it.
        """
        namespaces, self._namespaces = self._namespaces, None
        connections, self._connections = self._connections, None
        try:
            for process in self.processes:
                process.close()
            if connections is not None:
                connections.close()
        finally:
            if namespaces is not None:
                namespaces.close()

    # Inside

    @property
    def namespaces(self) -> Namespaces:
        """The lab's namespaces, while it is up."""
        if self._namespaces is None:
            raise LabError(_NOT_UP)
        return self._namespaces

    def run(
        self,
        *argv: str,
        check: bool = True,
        input: str | None = None,  # noqa: A002 as in subprocess.run
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in all of the lab's namespaces, in the caller's directory (with an overhead of 2 ms).

        Raises:
            CommandFailed: Its exit status is not 0, unless `check` is false; with all of its output.
            LabError: It took longer than `timeout_s`; it is killed.
        """
        return self.namespaces.run(argv, check=check, input=input, env=env, timeout_s=timeout_s)

    def spawn(self, *argv: str, env: Mapping[str, str] | None = None) -> Process:
        """Start a command in the background; it ends with the lab at the latest. Its first word, or `#2`, names it."""
        return self._start(PurePath(argv[0]).name, argv, env)

    def path(self, inside: str) -> Path:
        """Return the machine's path of an absolute path of the lab, e.g. `lab.path(PLUGIN_SOCKET)`; do not store it.

        The path must not contain a symbolic link to an absolute path: use `/run`, not `/var/run`.
        """
        return self.namespaces.path(inside)

    def request(
        self, socket: str, method: str, target: str, body: JsonValue = None, *, timeout_s: float = 10.0
    ) -> tuple[int, JsonValue]:
        """Send a request to a Unix socket of the lab; the server sees a process of the lab as its caller.

        Returns:
            The status, and the JSON document that was answered; None if it was not JSON.

        Raises:
            OSError: No server listens there, or it does not answer in time.
            http.client.HTTPException: The server does not use HTTP.
        """
        if self._connections is None:
            raise LabError(_NOT_UP)
        server = partial(self._connections.connect, socket)
        return unix_http.request(server, method, target, body, timeout_s=timeout_s)

    def write(self, path: str, content: str | JsonObject, *, mode: int = 0o644) -> None:
        """Write a file, directories on the way included; an object is written as JSON."""
        text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        self.run("sh", "-c", script, "write", path, f"{mode:o}", input=text)

    def read(self, path: str) -> str:
        """Return the content of a file."""
        return self.run("cat", path).stdout

    def remove(self, path: str) -> None:
        """Remove a file or a directory with its content, if it exists."""
        self.run("rm", "-rf", path)

    # Docker

    def docker(self, *argv: str, timeout_s: float = 60.0) -> str:
        """Run the docker command and return its stripped stdout.

        Raises:
            CommandFailed: As `run`.
        """
        return self.run("docker", *argv, timeout_s=timeout_s).stdout.strip()

    def docker_json(self, *argv: str) -> JsonValue:
        """Run a docker command that prints JSON, e.g. `"network", "inspect", "n"`, and return the document."""
        return parse_json(self.docker(*argv).encode())

    def container(self, name: str) -> Container:
        """Return a view of a container: its links, its addresses, and what Docker shows of them."""
        return Container(self.namespaces, name)

    def remove_container(self, name: str) -> None:
        """Remove a container, if there is one, without waiting for a clean stop."""
        docker_api.remove(self.namespaces, f"/containers/{name}?force=1")

    def remove_network(self, name: str) -> None:
        """Remove a network of Docker, if there is one and no container is on it."""
        docker_api.remove(self.namespaces, f"/networks/{name}")

    def start_dockerd(self, *options: str, timeout_s: float = 60.0) -> Process:
        """Start dockerd and wait until its API answers.

        Raises:
            LabError: It runs already, ended, or took longer than `timeout_s`.
        """
        _refuse_second(self.dockerd)
        self._dockerd_again = partial(self.start_dockerd, *options, timeout_s=timeout_s)
        argv = [
            *("dockerd", f"--host=unix://{DOCKER_SOCKET}", *options),
            # The keeper finds the containers' control groups below this one; see keeper.py
            *("--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{self.namespaces.name}"),
        ]
        if self._engine is not None and self._engine.nftables:
            self.run("sysctl", "--write", "net.ipv4.ip_forward=1")  # otherwise dockerd does not start
            argv.append("--firewall-backend=nftables")
        self.dockerd = self._start("dockerd", argv, None)
        self._wait_ready(self.dockerd, DOCKER_SOCKET, "GET", "/_ping", timeout_s)
        return self.dockerd

    def stop_dockerd(self, signal_number: int = signal.SIGTERM) -> int:
        """End dockerd and return its exit status. On SIGTERM it stops the containers first, on SIGKILL it does not."""
        return _stop(self.dockerd, signal_number)

    def restart_dockerd(self, signal_number: int = signal.SIGTERM) -> Process:
        """End dockerd and restart it with the same options."""
        return _restart(self.dockerd, self._dockerd_again, signal_number)

    # The daemon under test

    def start_daemon(
        self,
        *options: str,
        env: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        socket: str = PLUGIN_SOCKET,
        timeout_s: float = 30.0,
    ) -> Process:
        """Start the daemon and wait until `socket` answers Plugin.Activate.

        Without `command` it is that of the previous start, at first `cnm_bridge serve` of this interpreter.

        Raises:
            LabError: It runs already, ended, or took longer than `timeout_s`; with the end of its log.
        """
        _refuse_second(self.daemon)
        command = self._daemon_command = command or self._daemon_command
        self._daemon_again = partial(
            self.start_daemon, *options, env=env, command=command, socket=socket, timeout_s=timeout_s
        )
        self.daemon = self._start("daemon", [*command, *options], env)
        self._wait_ready(self.daemon, socket, "POST", "/Plugin.Activate", timeout_s)
        return self.daemon

    def stop_daemon(self, signal_number: int = signal.SIGTERM, *, timeout_s: float = 30.0) -> int:
        """End the daemon and return its exit status, negative for the signal that ended it."""
        return _stop(self.daemon, signal_number, timeout_s)

    def restart_daemon(self, signal_number: int = signal.SIGTERM) -> Process:
        """End the daemon and restart it with the same options."""
        return _restart(self.daemon, self._daemon_again, signal_number)

    # State and leftovers

    def state(self) -> LabState:
        """Return what the lab has now of everything that attachments, containers and networks may leave behind."""
        return observe(self.namespaces)

    def wait_clean(self, before: LabState, timeout_s: float = 30.0) -> str:
        """Wait until the lab has nothing that `before` did not have; return what is left at the limit, as text, or "".

        It may take a moment: Docker reports a container as gone before its endpoints are deleted.
        """
        deadline = time.monotonic() + timeout_s
        while (left := leftovers(before, self.state())) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def remove_leftovers(self, before: LabState) -> None:
        """Remove the containers and Docker networks that `before` did not have, and ignore errors."""
        after = self.state()
        for name in set(after.containers) - set(before.containers):
            self.run("docker", "rm", "--force", "--volumes", name, check=False)
        for name in set(after.networks) - set(before.networks):
            self.run("docker", "network", "rm", name, check=False)

    def _start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None) -> Process:
        number = 1 + sum(process.name.partition("#")[0] == name for process in self.processes)
        process = Process(self.namespaces, name if number == 1 else f"{name}#{number}", argv, env)
        self.processes.append(process)
        return process

    def _wait_ready(self, process: Process, socket: str, method: str, target: str, timeout_s: float) -> None:
        process.wait_ready(lambda: unix_http.is_answering(self.path(socket), method, target), timeout_s)

    def import_image(self) -> None:
        """Import the image `busybox`, as a lab with dockerd does at its start."""
        busybox = shutil.which("busybox", path=SEARCH_PATH)
        assert busybox is not None
        tar = self.path("/run/lab/busybox.tar")
        tar.write_bytes(image_tar(Path(busybox)))
        self.docker("import", "--change", 'CMD ["sh"]', "/run/lab/busybox.tar", IMAGE)
        tar.unlink()


def _refuse_second(process: Process | None) -> None:
    if process is not None and process.returncode is None:
        raise LabError(f"{process.name} runs already, as process {process.pid}")


def _stop(process: Process | None, signal_number: int, timeout_s: float = 30.0) -> int:
    if process is None:
        raise LabError("what is to be stopped was never started")
    process.kill(signal_number)
    return process.wait(timeout_s)


def _restart(process: Process | None, again: Callable[[], Process] | None, signal_number: int) -> Process:
    _stop(process, signal_number)
    assert again is not None
    return again()
