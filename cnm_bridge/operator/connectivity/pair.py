# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The two containers of a connectivity test."""

import json
import socket
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.connectivity.busybox_image import busybox_tar
from cnm_bridge.operator.connectivity.docker_command import DockerCommand
from cnm_bridge.operator.connectivity.view import parse_addresses
from cnm_bridge.operator.probe_containers import MARK, new_names
from cnm_bridge.system.commands import CompletedCommand

PORT: Final = 8080
_SERVE: Final = f"mkdir -p /tmp/www && echo {MARK} >/tmp/www/index.html && exec httpd -f -p {PORT} -h /tmp/www"
_GONE_S: Final = 30.0
_PAUSE_S: Final = 0.2


class Pair:
    """Two containers with a web server each, on one network, with the names of `probe_containers`.

    Args:
        network: The name of the network.
        publishes: Whether the second container publishes its port.
        is_torn_down: Returns whether the daemon knows none of these endpoints; True if it cannot be asked.
    """

    def __init__(
        self, docker: DockerCommand, network: str, *, publishes: bool, is_torn_down: Callable[[frozenset[str]], bool]
    ) -> None:
        self._docker = docker
        self._network = network
        self._is_torn_down = is_torn_down
        first, second, self._image = new_names()
        self.names = (first, second)
        self.host_port = _free_port() if publishes else None
        self._made: list[str] = []
        self._has_image = False
        self._endpoints: set[str] = set()

    def start(self, busybox: Path) -> CompletedCommand:
        """Import the image, and start both containers; return the first command that failed, else the last one."""
        self._has_image = True
        done = self._docker.run("import", "-", self._image, content=busybox_tar(busybox))
        if not done.succeeded:
            return done
        for name in self.names:
            ports = ("--publish", f"{self.host_port}:{PORT}") if self.host_port and name == self.names[1] else ()
            self._made.append(name)
            command = ("create", "--name", name, "--network", self._network, *ports, self._image, "sh", "-c", _SERVE)
            done = self._docker.run(*command)
            if done.succeeded:
                done = self._docker.run("start", name)
            self._note_endpoint(name)
            if not done.succeeded:
                return done
        return done

    def inside(self, name: str, *command: str) -> CompletedCommand:
        """Run a command in a container."""
        return self._docker.run("exec", name, *command)

    def addresses(self, name: str) -> tuple[IPv4Address | IPv6Address, ...]:
        """Return the addresses inside a container."""
        return parse_addresses(self.inside(name, "ip", "addr").output)

    def has_docker_address(self, name: str) -> bool:
        """Return whether Docker knows an address of a container, which its DNS answers."""
        return any(network.get("IPAddress") or network.get("GlobalIPv6Address") for network in self._shown(name))

    def remove(self) -> str:
        """Remove everything, also what was only begun; return what is left, "" if nothing is."""
        left = []
        for name in self._made:
            self._note_endpoint(name)
            done = self._docker.run("rm", "--force", "--volumes", name)
            if not done.succeeded and "No such container" not in done.error:
                left.append(done.error)
        if self._has_image:
            done = self._docker.run("rmi", "--force", self._image)
            if not done.succeeded and "No such image" not in done.error:
                left.append(done.error)
        deadline = time.monotonic() + _GONE_S
        endpoints = frozenset(self._endpoints)
        while not (is_gone := self._is_torn_down(endpoints)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        if not is_gone:
            left.append(f"the teardown of an endpoint has not completed in {_GONE_S:g} s")
        return "; ".join(left)

    def _note_endpoint(self, name: str) -> None:
        self._endpoints.update(network["EndpointID"] for network in self._shown(name) if network.get("EndpointID"))

    def _shown(self, name: str) -> list[dict[str, str]]:
        done = self._docker.run("inspect", "--format", "{{json .NetworkSettings.Networks}}", name)
        try:
            return list(json.loads(done.output).values()) if done.succeeded else []
        except ValueError:
            return []


def _free_port() -> int:
    """Return a port of the host that nothing uses now.

    Raises:
        Refused: There is none.
    """
    try:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
            return port
    except OSError as exc:
        raise Refused(f"the host has no free port: {exc.strerror}") from exc
