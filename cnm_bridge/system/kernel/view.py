# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's view of what exists: links, namespaces and processes. Nothing here changes them."""

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from cnm_bridge.core.link_state import IpInterface, IpNetwork, KernelError, Snapshot, attempt
from cnm_bridge.core.planning.link.plan_sandbox import uses_ipv6
from cnm_bridge.core.planning.link.without_ipv6 import sets_ipv6, without_ipv6
from cnm_bridge.system.kernel.link_mover import LinkMover
from cnm_bridge.system.kernel.namespaces.first_process import (
    SandboxProcess,
    find_first_processes,
    find_latest_first_process,
    find_outermost,
    find_recent_cgroups,
    find_start,
    is_inhabited,
)
from cnm_bridge.system.kernel.namespaces.netns import current_namespace, is_namespace, namespace_id, run_in_thread
from cnm_bridge.system.kernel.namespaces.reader import (
    NamespaceReader,
    gone_sandboxes,
    list_namespaces,
    mounted_namespaces,
)
from cnm_bridge.system.kernel.namespaces.sandboxes import PROCESSES, Sandboxes
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.sandbox.container_file import has_container_files
from cnm_bridge.system.kernel.sandbox.link_in_sandbox import LinkInSandbox

_AT_ONCE: Final = 8
"""Concurrent worker threads; each has up to four descriptors open."""
_NOT_VISIBLE: Final = "Docker's processes are in a PID namespace that is not visible from here"

log = structlog.get_logger()
T = TypeVar("T")


class KernelView:
    """Reads links, namespaces and processes; `Kernel` adds the operations that change them.

    The namespace of the thread that creates this object is the host namespace. Each coroutine runs completely in
    one short-lived thread, and raises `KernelError` if the kernel refuses.

    Args:
        reply_limit_s: Time limit of one netlink reply, in seconds.
        processes: The directory to find processes in.
    """

    def __init__(self, *, reply_limit_s: float, processes: Path = PROCESSES) -> None:
        self._reply_limit_s = reply_limit_s
        self._processes = processes
        self._sees_processes = True
        self._unread: frozenset[str] = frozenset()
        with current_namespace() as fd:
            self._host = namespace_id(fd)
        self._reader = NamespaceReader(host=self._host, reply_limit_s=reply_limit_s, processes=processes)
        self._work = asyncio.Semaphore(_AT_ONCE)

    def is_namespace(self, path: Path) -> bool:
        """Return whether a network namespace is mounted at `path`. Does not block."""
        return is_namespace(path)

    def has_host_link(self, name: str) -> bool:
        """Return whether the host namespace has a link of this name. Does not block; call it in the event loop."""
        try:
            return socket.if_nametoindex(name) > 0
        except OSError:
            return False

    async def host_links(self) -> tuple[Link, ...]:
        """Return all links of the host namespace."""
        return await self._run(self._reader.host_links)

    async def links_in(self, sandbox: Path) -> tuple[Link, ...]:
        """Return all links of a sandbox, none if it does not exist or is the host namespace."""
        return await self._run(partial(self._reader.links_in, sandbox))

    async def is_ipv6_disabled(self, sandbox: Path) -> bool:
        """Return whether IPv6 is disabled on all links of a sandbox (`net.ipv6.conf.all.disable_ipv6=1`).

        Not if the sandbox does not exist or is the host namespace.
        """
        return await self._run(partial(self._reader.is_ipv6_disabled, sandbox))

    async def as_allowed(self, sandbox: Path, snapshot: Snapshot) -> Snapshot:
        """Return a link's snapshot as the sandbox allows it: without IPv6, if that is disabled on all links there."""
        is_concerned = uses_ipv6(snapshot) or sets_ipv6(snapshot)
        return without_ipv6(snapshot) if is_concerned and await self.is_ipv6_disabled(sandbox) else snapshot

    async def host_addresses(self) -> tuple[tuple[IpInterface, str], ...]:
        """Return the addresses of the host namespace, each with the name of its link."""
        return await self._run(self._reader.host_addresses)

    async def host_destinations(self) -> tuple[tuple[IpNetwork, str, bool], ...]:
        """Return each route of the host namespace's main table: destination, link's name, whether it has a next hop."""
        return await self._run(self._reader.host_destinations)

    async def find_without_link(self, sandboxes: Mapping[str, str]) -> frozenset[str]:
        """Return the alternative names of the links that are missing from their sandboxes.

        Args:
            sandboxes: Alternative name → path of the sandbox. A sandbox that does not exist is ignored.
        """
        return await self._run(partial(self._reader.find_without_link, sandboxes))

    async def dynamic_addresses(self, sandboxes: Mapping[str, str]) -> Mapping[str, tuple[IpInterface, ...]]:
        """Return the addresses of links that the kernel has learnt, such as from router advertisements.

        Takes some 0.3 ms for each link.

        Args:
            sandboxes: Alternative name → path of the sandbox. One that cannot be read is ignored.

        Returns:
            Alternative name → addresses, for the links that have any.
        """
        return await self._run(partial(self._reader.dynamic_addresses, sandboxes))

    def distrust_processes(self) -> None:
        """Record that `/proc` does not show all processes, because the daemon is in a PID namespace of its own.

        From then on it is not known in which sandboxes processes run.
        """
        self._sees_processes = False

    async def look_into_sandboxes(self, known: Iterable[str] = ()) -> Sandboxes:
        """Return what is in Docker's sandboxes now. One that cannot be read is logged, and says nothing about others.

        Args:
            known: The paths of further sandboxes, such as those in records. They need not exist.

        Raises:
            KernelError: The mounts or the processes cannot be read, or a sandbox cannot be opened.
        """
        found = await self._run(partial(self._reader.look_into_sandboxes, tuple(known)))
        errors = frozenset(found.unread.values())
        for error in sorted(errors - self._unread):
            log.warning("sandbox.unread", error=error)
        self._unread = errors
        return found if self._sees_processes else replace(found, inhabited=None)

    async def mounted_namespaces(self) -> tuple[Path, ...]:
        """Return the paths at which network namespaces are mounted, by Docker or any other program.

        Raises:
            KernelError: The mounts cannot be read.
        """
        return await self._run(mounted_namespaces)

    def find_start(self, pid: int) -> int | None:
        """Return the start time of a process in clock ticks since boot, None if it does not exist. Does not block.

        Raises:
            KernelError: `/proc` cannot be read.
        """
        with attempt("look at", f"process {pid}"):
            return find_start(pid, self._processes)

    async def find_latest_first_process(self, sandbox: Path) -> SandboxProcess | None:
        """Return the first process of the container in a sandbox, of several containers that of the latest.

        None if there is none or none is visible.

        Raises:
            KernelError: The sandbox does not exist, or `/proc` cannot be read.
        """
        return await self._look_for(find_latest_first_process, sandbox) if self._sees_processes else None

    async def find_first_processes(self, sandbox: Path) -> tuple[SandboxProcess, ...]:
        """Return the first processes of all containers in a sandbox, the oldest first; raises as above.

        Looks at each process of the host.
        """
        return await self._look_for(find_first_processes, sandbox) if self._sees_processes else ()

    async def find_container_process(self, sandbox: Path) -> SandboxProcess | None:
        """Return a process in a sandbox that sees the files that dockerd mounts in the container.

        None if there is none or none is visible. It need not be of the container that the sandbox belongs to: those
        that share a sandbox (`--network container:`) have the same files.

        Raises:
            KernelError: The sandbox does not exist, or `/proc` cannot be read.
        """

        def look(sandbox: Path, processes: Path) -> SandboxProcess | None:
            for process in find_outermost(sandbox, processes):
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    if has_container_files(processes / str(process.pid)):
                        return process
            return None

        return await self._look_for(look, sandbox) if self._sees_processes else None

    async def find_recent_cgroups(self) -> frozenset[str]:
        """Return the cgroups of the latest processes: the text of `/proc/<pid>/cgroup`. None if none is visible.

        Raises:
            KernelError: `/proc` cannot be read.
        """
        if not self._sees_processes:
            return frozenset()

        def find() -> frozenset[str]:
            with attempt("look for", "the latest processes"):
                return find_recent_cgroups(self._processes)

        return await self._run(find)

    async def is_inhabited(self, sandbox: Path) -> bool:
        """Return whether any process is in a sandbox. Looks at each process of the host.

        Raises:
            KernelError: The sandbox does not exist, or not all processes are visible.
        """
        if not self._sees_processes:
            raise KernelError("look for processes of", str(sandbox), _NOT_VISIBLE)
        return await self._look_for(is_inhabited, sandbox)

    async def gone_sandboxes(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of the given sandboxes that Docker has visibly removed."""
        return await self._run(partial(gone_sandboxes, paths))

    async def look_in_sandbox(self, sandbox: Path, altname: str) -> Snapshot | None:
        """Return a link in a sandbox with its addresses and routes, and the sandbox's policy rules.

        None if the sandbox does not exist, is the host namespace, or does not have the link. Nothing is changed.
        """
        return await self._run(self._link_in_sandbox(sandbox, altname).look)

    async def look_at_staged(self, path: Path, ifname: str) -> Snapshot:
        """Return a snapshot of the link in its staging namespace, with its state and addresses only.

        Raises:
            NamespaceMissing: Nothing is mounted at `path`.
            KernelError: The namespace has no such link, or the kernel refused.
        """
        return await self._run(self._mover(path, ifname, altname="").look)

    async def namespaces_in(self, directory: Path) -> tuple[Path, ...]:
        """Return all paths in a directory of namespaces, also of those that are no longer mounted.

        Raises:
            KernelError: The directory cannot be read.
        """
        return await self._run(partial(list_namespaces, directory))

    async def _look_for(self, look: Callable[[Path, Path], T], sandbox: Path) -> T:
        """Run a function that takes a sandbox and a directory like `/proc`."""

        def work() -> T:
            with attempt("look for processes of", str(sandbox)):
                return look(sandbox, self._processes)

        return await self._run(work)

    async def _run(self, work: Callable[[], T]) -> T:
        """Run `work` in a short-lived thread, at most `_AT_ONCE` at a time."""
        async with self._work:
            return await run_in_thread(work)

    def _link_in_sandbox(self, sandbox: Path, altname: str) -> LinkInSandbox:
        return LinkInSandbox(host=self._host, sandbox=sandbox, altname=altname, reply_limit_s=self._reply_limit_s)

    def _mover(self, path: Path, ifname: str, altname: str) -> LinkMover:
        return LinkMover(host=self._host, path=path, ifname=ifname, altname=altname, reply_limit_s=self._reply_limit_s)
