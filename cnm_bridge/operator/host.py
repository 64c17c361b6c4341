# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What commands read of the host, its links and routes, and what its programs print; files that they write."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import IpInterface, IpNetwork
from cnm_bridge.core.lists.address_ranges import overlap
from cnm_bridge.system.commands import run_command
from cnm_bridge.system.kernel import Kernel

_BRIDGE: Final = "bridge"
_VETH: Final = "veth"
_INWARD: Final = frozenset({"tun", "dummy"})
"""Kinds of links behind which virtual machines of the host are. Behind a veth with the name that the plugin `bridge`,
Docker and LXC give it, there is a container."""
_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """A link of the host.

    Attributes:
        kind: As the kernel calls it, e.g. `bridge`; None for a physical device.
        is_stretched: Whether it is a bridge with a port that leads out of the host.
        has_ports: Whether other links are in it.
    """

    mtu: int
    kind: str | None = None
    addresses: tuple[IpInterface, ...] = ()
    altnames: tuple[str, ...] = ()
    is_stretched: bool = False
    has_ports: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoute:
    """A route of the host's main table.

    Attributes:
        link: The name of its link, "" if it has none.
    """

    destination: IpNetwork
    link: str

    def occupies(self, subnet: IpNetwork, links: Mapping[str, HostLink]) -> bool:
        """Return whether packets to a new network with this subnet could be meant for others.

        A shorter prefix that is not that of an address of the host leads to a router or into a tunnel, as the default
        route and those of a VPN do (0.0.0.0/1, 10.0.0.0/8). The network's own route is preferred to it.
        """
        link = links.get(self.link)
        is_own = link is not None and any(address.network == self.destination for address in link.addresses)
        is_close = is_own or self.destination.prefixlen >= subnet.prefixlen
        return is_close and overlap(subnet, self.destination)


async def read_links(kernel: Kernel) -> Mapping[str, HostLink]:
    """Return the links of the host by name.

    Raises:
        KernelError: They cannot be read.
    """
    links, addresses = await kernel.host_links(), await kernel.host_addresses()
    masters = {link.master for link in links}
    outward = {
        link.master
        for link in links
        if link.state.kind not in _INWARD and not is_of_container(link.state.name, link.state.kind)
    }
    return {
        link.state.name: HostLink(
            mtu=link.state.mtu,
            kind=link.state.kind,
            addresses=tuple(address for address, name in addresses if name == link.state.name),
            altnames=link.altnames,
            is_stretched=link.state.kind == _BRIDGE and link.index in outward,
            has_ports=link.index in masters,
        )
        for link in links
    }


def is_of_container(name: str, kind: str | None) -> bool:
    """Return whether a link leads into a container, as far as its name and kind say."""
    return kind == _VETH and name.startswith(_VETH)


async def read_routes(kernel: Kernel) -> tuple[HostRoute, ...]:
    """Return the routes of the host; errors as in `read_links`."""
    found = await kernel.host_destinations()
    return tuple(HostRoute(destination=one, link=link) for one, link in found)


async def read_lines(*command: str) -> tuple[str, ...] | None:
    """Return the lines that a command prints; None if it is not installed, fails or does not end in time."""
    try:
        done = await run_command(*command, limit_s=_LIMIT_S)
    except OSError:
        return None
    return tuple(done.output.splitlines()) if done.succeeded else None


_PRIVATE: Final = 0o600


def write_whole(file: Path, content: bytes, *, mode: int = _PRIVATE, replaces: bool = True) -> None:
    """Write a file at once and as a whole; its permissions are `mode`, whatever the umask is.

    Raises:
        Refused: It exists, or cannot be written, e.g. because the disk is full; nothing is left of it, and a former
            file stays.
    """
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "wb") as stream:
                os.fchmod(fd, mode)
                stream.write(content)
                stream.flush()
                os.fsync(fd)
            if replaces:
                unfinished.replace(file)
            else:
                os.link(unfinished, file)  # a rename would replace a file that was made meanwhile
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as exc:
        raise Refused(f"cannot write {file}: {exc.strerror}") from exc
