# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's view of what exists: links, namespaces and processes. Nothing here changes them."""

import socket
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from errno import ENODEV
from pathlib import Path
from typing import Final

import structlog

from cnm_bridge.core.errors import KernelError, attempt
from cnm_bridge.core.link.plan_sandbox import sets_ipv6, uses_ipv6, without_ipv6
from cnm_bridge.core.link_state import Address, IpInterface, IpNetwork, Snapshot, find_dynamic
from cnm_bridge.system.kernel.container_files import has_container_files
from cnm_bridge.system.kernel.host import PROCESSES, Host, in_thread
from cnm_bridge.system.kernel.link_in_sandbox import LinkInSandbox
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import Link, find_link_by_altname, list_links
from cnm_bridge.system.kernel.netlink.routes import find_destinations
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.netns import is_namespace, namespace_id, open_namespace
from cnm_bridge.system.kernel.processes import (
    SandboxProcess,
    find_first_processes,
    find_inhabited,
    find_latest_first_process,
    find_outermost,
    find_recent_cgroups,
    find_start,
)
from cnm_bridge.system.kernel.sandboxes import Sandboxes, gone_sandboxes, look_into_sandboxes, mounted_namespaces
from cnm_bridge.system.kernel.sysctl import is_ipv6_disabled

_HIDDEN: Final = (
    "it is not known which containers run, so an endpoint whose sandbox is mounted stays unless Docker deletes it; run "
    "cni-bridge in the PID namespace of dockerd"
)
_NOT_VISIBLE: Final = "Docker's processes are in a PID namespace that is not visible from here"

log = structlog.get_logger()


class KernelView:
    """Reads links, namespaces and processes; `Kernel` adds the operations that change them.

    The namespace of the thread that creates this object is the host namespace. Each coroutine runs completely in
    one short-lived thread, and raises `KernelError` if the kernel refuses.
    """

    def __init__(self, *, reply_limit_s: float, processes: Path = PROCESSES) -> None:
        self.host = Host(reply_limit_s=reply_limit_s, processes=processes)
        self._sees_processes = True
        self._unread: frozenset[str] = frozenset()

    def is_namespace(self, path: Path) -> bool:
        """Return whether a network namespace is mounted at `path`. Does not block."""
        return is_namespace(path)

    def has_host_link(self, name: str) -> bool:
        """Return whether the host namespace has a link of this name. Does not block; call it in the event loop."""
        try:
            return socket.if_nametoindex(name) > 0
        except OSError:
            return False

    @in_thread
    def host_links(self) -> tuple[Link, ...]:
        """Return all links of the host namespace."""
        with attempt("list", "links"), self.host.netlink() as netlink:
            return list_links(netlink)

    @in_thread
    def host_addresses(self) -> tuple[tuple[IpInterface, str], ...]:
        """Return the addresses of the host namespace, each with the name of its link."""
        with attempt("list", "addresses"), self.host.netlink() as netlink:
            return tuple(
                (address.address, link.state.name)
                for link in list_links(netlink)
                for address in _addresses_of(netlink, link)
            )

    @in_thread
    def host_destinations(self) -> tuple[tuple[IpNetwork, str], ...]:
        """Return each route of the host namespace's main table: destination and link's name.

        The name is "" if there is no link, or several.
        """
        with attempt("list", "routes"), self.host.netlink() as netlink:
            names = {link.index: link.state.name for link in list_links(netlink)}
            return tuple((destination, names.get(index or 0, "")) for destination, index in find_destinations(netlink))

    @in_thread
    def is_ipv6_disabled(self, sandbox: Path) -> bool:
        """Return whether IPv6 is disabled on all links of a sandbox (`net.ipv6.conf.all.disable_ipv6=1`).

        Not if the sandbox does not exist or is the host namespace.
        """
        with attempt("look into", str(sandbox)), self.host.inside_sandbox(sandbox) as netlink:
            return netlink is not None and is_ipv6_disabled()

    async def as_allowed(self, sandbox: Path, snapshot: Snapshot) -> Snapshot:
        """Return a link's snapshot as the sandbox allows it: without IPv6, if that is disabled on all links there."""
        is_concerned = uses_ipv6(snapshot) or sets_ipv6(snapshot)
        return without_ipv6(snapshot) if is_concerned and await self.is_ipv6_disabled(sandbox) else snapshot

    def link_in_sandbox(self, sandbox: Path, altname: str) -> LinkInSandbox:
        """Return the link with an alternative name in a sandbox, whether it is there or not."""
        return LinkInSandbox(host=self.host, sandbox=sandbox, altname=altname)

    @in_thread
    def dynamic_addresses(self, sandboxes: Mapping[str, str]) -> Mapping[str, tuple[IpInterface, ...]]:
        """Return the addresses of links that the kernel has learnt, such as from router advertisements.

        Takes some 0.3 ms for each link.

        Args:
            sandboxes: Alternative name → path of the sandbox. One that cannot be read is ignored.

        Returns:
            Alternative name → addresses, for the links that have any.
        """
        learnt: dict[str, tuple[IpInterface, ...]] = {}
        for altname, path in sandboxes.items():
            with suppress(KernelError), attempt("look into", path), self.host.inside_sandbox(Path(path)) as netlink:
                link = None if netlink is None else find_link_by_altname(netlink, altname)
                if netlink is not None and link is not None and (dynamic := find_dynamic(_addresses_of(netlink, link))):
                    learnt[altname] = dynamic
        return learnt

    def distrust_processes(self) -> None:
        """Record, and log once, that `/proc` does not show all processes: the daemon is in a PID namespace of its own.

        From then on it is not known in which sandboxes processes run.
        """
        if self._sees_processes:
            log.warning("processes.hidden", consequence=_HIDDEN)
        self._sees_processes = False

    async def look_into_sandboxes(self, known: Iterable[str] = ()) -> Sandboxes:
        """Return what is in Docker's sandboxes now. One that cannot be read is logged, and says nothing about others.

        Args:
            known: The paths of further sandboxes, such as those in records. They need not exist.

        Raises:
            KernelError: The mounts or the processes cannot be read, or a sandbox cannot be opened.
        """
        paths = tuple(known)
        sandboxes = await self.host.run(lambda: look_into_sandboxes(self.host, paths))
        errors = frozenset(sandboxes.unread.values())
        for error in sorted(errors - self._unread):
            log.warning("sandbox.unread", error=error)
        self._unread = errors
        return sandboxes if self._sees_processes else replace(sandboxes, inhabited=None)

    @in_thread
    def mounted_namespaces(self) -> tuple[Path, ...]:
        """Return the paths where network namespaces are mounted, by Docker or any other program."""
        return mounted_namespaces()

    @in_thread
    def namespaces_in(self, directory: Path) -> tuple[Path, ...]:
        """Return all paths in a directory of namespaces, also of those that are no longer mounted."""
        with attempt("list", str(directory)):
            return tuple(sorted(directory.iterdir())) if directory.is_dir() else ()

    @in_thread
    def gone_sandboxes(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of the given sandboxes that Docker has visibly removed."""
        return gone_sandboxes(paths)

    def find_start(self, pid: int) -> int | None:
        """Return the start time of a process in clock ticks since boot, None if it does not exist. Does not block.

        Raises:
            KernelError: `/proc` cannot be read.
        """
        with attempt("look at", f"process {pid}"):
            return find_start(pid, self.host.processes)

    @in_thread
    def find_latest_first_process(self, sandbox: Path) -> SandboxProcess | None:
        """Return the first process of the container in a sandbox, of several containers that of the latest.

        None if there is none or none is visible.

        Raises:
            KernelError: The sandbox does not exist, or `/proc` cannot be read.
        """
        with attempt("look for processes of", str(sandbox)):
            return find_latest_first_process(sandbox, self.host.processes) if self._sees_processes else None

    @in_thread
    def find_first_processes(self, sandbox: Path) -> tuple[SandboxProcess, ...]:
        """Return the first processes of all containers in a sandbox, the oldest first; raises as above.

        Looks at each process of the host.
        """
        with attempt("look for processes of", str(sandbox)):
            return find_first_processes(sandbox, self.host.processes) if self._sees_processes else ()

    @in_thread
    def find_container_process(self, sandbox: Path) -> SandboxProcess | None:
        """Return a process in a sandbox that sees the files that dockerd mounts in the container.

        None if there is none or none is visible. It need not be of the container that the sandbox belongs to: those
        that share a sandbox (`--network container:`) have the same files.

        Raises:
            KernelError: The sandbox does not exist, or `/proc` cannot be read.
        """
        with attempt("look for processes of", str(sandbox)):
            for process in find_outermost(sandbox, self.host.processes) if self._sees_processes else ():
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    if has_container_files(self.host.processes / str(process.pid)):
                        return process
        return None

    @in_thread
    def find_recent_cgroups(self) -> frozenset[str]:
        """Return the cgroups of the latest processes: the text of `/proc/<pid>/cgroup`. None if none is visible.

        Raises:
            KernelError: `/proc` cannot be read.
        """
        with attempt("look for", "the latest processes"):
            return find_recent_cgroups(self.host.processes) if self._sees_processes else frozenset()

    @in_thread
    def is_inhabited(self, sandbox: Path) -> bool:
        """Return whether any process is in a sandbox. Looks at each process of the host.

        Raises:
            KernelError: The sandbox does not exist, or not all processes are visible.
        """
        with attempt("look for processes of", str(sandbox)):
            with open_namespace(sandbox) as fd:
                namespace = namespace_id(fd)
            inhabited = find_inhabited(self.host.processes) if self._sees_processes else None
        if inhabited is None:
            raise KernelError("look for processes of", str(sandbox), _NOT_VISIBLE)
        return namespace in inhabited


def _addresses_of(netlink: Netlink, link: Link) -> tuple[Address, ...]:
    """Return the addresses of a link, none if it is gone since it was listed."""
    try:
        return find_addresses(netlink, link)
    except OSError as exc:
        if exc.errno != ENODEV:
            raise
        return ()
