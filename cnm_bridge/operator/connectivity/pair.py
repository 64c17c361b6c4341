# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The two containers of a connectivity test, made of the host's own static busybox, so that no registry is needed."""

import io
import re
import secrets
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused
from cnm_bridge.system.commands import CompletedCommand

MARK: Final = "cni-bridge-test"
_LIMIT_S: Final = 120.0
"""Longer than a plugin may take."""
_GONE_S: Final = 30.0
"""How long a teardown, which Docker does not wait for, may take."""
_PAUSE_S: Final = 0.2
_MAGIC: Final = b"\x7fELF"
_LOADER: Final = re.compile(rb"/ld[\w.-]*\.so")
"""The dynamic loader; a program that needs shared libraries names it near its beginning (elf(5), PT_INTERP)."""
_BEGINNING: Final = 4096
PORT: Final = 8080
_SERVE: Final = f"mkdir -p /tmp/www && echo {MARK} >/tmp/www/index.html && exec httpd -f -p {PORT} -h /tmp/www"


@dataclass(frozen=True, slots=True)
class DockerCommand:
    """The docker command for one engine.

    A command that has begun runs to its end, also after Ctrl-C: an interrupted `docker create` could make its container
    after everything was removed.
    """

    host: str

    def run(self, *arguments: str, content: bytes | None = None) -> CompletedCommand:
        """Run a command; its output is stripped, and its errors are on one line.

        Raises:
            Refused: docker is not installed, or did not end in time.
        """
        try:
            process = subprocess.Popen(
                ("docker", "--host", self.host, *arguments),  # noqa: S607 - the operator's own docker
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C does not reach it
            )
        except OSError as exc:
            raise Refused(f"cannot run docker: {exc.strerror}") from exc
        with process:
            try:
                output, errors = process.communicate(content, timeout=_LIMIT_S)
            except KeyboardInterrupt:
                process.communicate(timeout=_LIMIT_S)
                raise
            except subprocess.TimeoutExpired as exc:
                process.kill()
                raise Refused(f"docker {arguments[0]} did not end within {_LIMIT_S:g} s") from exc
        text = " ".join(errors.decode("utf-8", "replace").split())
        return CompletedCommand(
            succeeded=process.returncode == 0,
            output=output.decode("utf-8", "replace").strip(),
            error=text or f"exit status {process.returncode}",
        )


def busybox_tar(busybox: Path) -> bytes:
    """Return a tar with busybox and a link for each of its applets in /bin, and the directories a container expects.

    Raises:
        Refused: It cannot be read, is not an executable, or needs shared libraries.
    """
    try:
        program = busybox.read_bytes()
    except OSError as exc:
        raise Refused(f"cannot read {busybox}: {exc.strerror}") from exc
    if not program.startswith(_MAGIC):
        raise Refused(f"{busybox} is not an executable; install the package busybox-static")
    if _LOADER.search(program[:_BEGINNING]):
        raise Refused(f"{busybox} needs shared libraries; install the package busybox-static")
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory in ("bin", "dev", "etc", "proc", "root", "sys", "tmp"):
            tar.addfile(_entry(directory, tarfile.DIRTYPE))
        tar.addfile(_entry("bin/busybox", tarfile.REGTYPE, size=len(program)), io.BytesIO(program))
        for applet in applets:
            if applet != "busybox":
                tar.addfile(_entry(f"bin/{applet}", tarfile.SYMTYPE, linkname="busybox"))
    return buffer.getvalue()


def _entry(name: str, kind: bytes, *, size: int = 0, linkname: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, 0o755, size, linkname
    return entry


class Pair:
    """Two containers with a web server each, on one network.

    Args:
        is_torn_down: Returns whether the daemon knows none of these endpoints; True if it cannot be asked.
        name_server: The value of `--dns` that the containers get; None for Docker's own.
    """

    def __init__(
        self,
        docker: DockerCommand,
        network: str,
        *,
        publishes: bool,
        is_torn_down: Callable[[frozenset[str]], bool],
        name_server: str | None = None,
    ) -> None:
        self._docker = docker
        self._is_torn_down = is_torn_down
        self._options = ("--network", network, *(() if name_server is None else ("--dns", name_server)))
        suffix = secrets.token_hex(4)
        self.names = (f"{MARK}-{suffix}-a", f"{MARK}-{suffix}-b")
        self._image = f"{MARK}:{suffix}"
        self.host_port = _free_port() if publishes else None
        self._made: list[str] = []
        self._has_image = False
        self._endpoints: frozenset[str] = frozenset()

    def start(self, busybox: Path) -> CompletedCommand:
        """Import the image, and start both containers; return the first command that failed, else the last one."""
        self._has_image = True
        done = self._docker.run("import", "-", self._image, content=busybox_tar(busybox))
        if not done.succeeded:
            return done
        for name in self.names:
            ports = ("--publish", f"{self.host_port}:{PORT}") if self.host_port and name == self.names[1] else ()
            self._made.append(name)
            command = ("create", "--name", name, *self._options, *ports, self._image, "sh", "-c", _SERVE)
            done = self._docker.run(*command)
            if done.succeeded:
                done = self._docker.run("start", name)
            form = "{{range .NetworkSettings.Networks}}{{.EndpointID}} {{end}}"
            self._endpoints |= {*self._docker.run("inspect", "--format", form, name).output.split()}
            if not done.succeeded:
                return done
        return done

    def inside(self, name: str, *command: str) -> CompletedCommand:
        """Run a command in a container."""
        return self._docker.run("exec", name, *command)

    def has_docker_address(self, name: str) -> bool:
        """Return whether Docker knows an address of a container, which its DNS answers."""
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{.GlobalIPv6Address}}{{end}}"
        done = self._docker.run("inspect", "--format", form, name)
        return done.succeeded and bool(done.output)

    def remove(self) -> str:
        """Remove everything, also what was only begun; return what is left, "" if nothing is."""
        left = []
        for name in self._made:
            done = self._docker.run("rm", "--force", "--volumes", name)
            if not done.succeeded and "No such container" not in done.error:
                left.append(done.error)
        if self._has_image:
            done = self._docker.run("rmi", "--force", self._image)
            if not done.succeeded and "No such image" not in done.error:
                left.append(done.error)
        deadline = time.monotonic() + _GONE_S
        while not (is_gone := self._is_torn_down(self._endpoints)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        if not is_gone:
            left.append(f"the teardown of an endpoint has not completed in {_GONE_S:g} s")
        return "; ".join(left)


def _free_port() -> int:
    """Return a port of the host that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
