# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A network namespace, read and changed through iproute2, not through the code under test."""

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cni_bridge_spec import JsonObject, as_object, get_int, get_objects, get_str, get_strings, parse_json


@contextmanager
def living_process(*prefix: str) -> Iterator[int]:
    """Run a process through the command `prefix` for the length of the block; gives its process ID."""
    process = subprocess.Popen([*prefix, "sh", "-c", "echo up; exec sleep 1000"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network namespace that is mounted somewhere."""

    path: Path

    def run(self, command: str) -> bytes:
        """Run a command inside and return its output; raise `CalledProcessError` if it fails."""
        inside = ["nsenter", f"--net={self.path}", *shlex.split(command)]
        return subprocess.run(inside, check=True, stdout=subprocess.PIPE).stdout

    @contextmanager
    def living(self) -> Iterator[int]:
        """Keep a process inside for the length of the block; gives its process ID."""
        with living_process("nsenter", f"--net={self.path}") as pid:
            yield pid

    def ip(self, *commands: str) -> None:
        """Run `ip` commands."""
        for command in commands:
            self.run(f"ip {command}")

    def links(self) -> set[str]:
        """Return the names of the links, without `lo`."""
        return {get_str(link, "ifname") for link in self._show("link show")} - {"lo"}

    def link(self, name: str) -> JsonObject:
        """Return what `ip -details link` shows of a link."""
        (link,) = self._show(f"-details link show dev {name}")
        return link

    def index(self, name: str) -> int:
        """Return the index of a link."""
        return get_int(self.link(name), "ifindex")

    def altnames(self, name: str) -> tuple[str, ...]:
        """Return the alternative names of a link."""
        return get_strings(self.link(name), "altnames")

    def is_up(self, name: str) -> bool:
        """Return whether a link is up."""
        return "UP" in get_strings(self.link(name), "flags")

    def addresses(self, name: str) -> list[str]:
        """Return the addresses of a link that are not link-local, as the kernel orders them."""
        (link,) = self._show(f"address show dev {name}")
        found = (info for info in get_objects(link, "addr_info") if get_str(info, "scope") != "link")
        return [f"{get_str(info, 'local')}/{get_int(info, 'prefixlen')}" for info in found]

    def setting(self, name: str) -> str:
        """Return the value of a sysctl, e.g. `net/ipv6/conf/default/accept_dad`."""
        return self.run(f"cat /proc/sys/{name}").decode().strip()

    def _show(self, command: str) -> tuple[JsonObject, ...]:
        output = parse_json(self.run(f"ip -json {command}"))
        assert isinstance(output, list)
        return tuple(as_object(item, command) for item in output)


@contextmanager
def made_namespace(name: str) -> Iterator[Namespace]:
    """Make a namespace below /run/netns for the length of the block; the block may delete it."""
    subprocess.run(["ip", "netns", "add", name], check=True)
    path = Path("/run/netns", name)
    try:
        yield Namespace(path)
    finally:
        if path.exists():
            subprocess.run(["ip", "netns", "delete", name], check=True)
