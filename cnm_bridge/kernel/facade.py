# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The kernel operations of the daemon. Each call runs completely in one short-lived thread."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from cnm_bridge.kernel.movement.departures import Departures
from cnm_bridge.kernel.movement.link_mover import LinkLocation, LinkMover
from cnm_bridge.kernel.namespaces.discovery import (
    altnames_in_use,
    altnames_mounted,
    delete_host_link,
    find_without_link,
    gone_sandboxes,
    list_host_links,
    list_namespaces,
)
from cnm_bridge.kernel.namespaces.netns import (
    current_namespace,
    ensure_namespace,
    enter,
    is_namespace,
    namespace_id,
    open_namespace,
    remove_namespace,
)
from cnm_bridge.kernel.namespaces.process_namespaces import PROCESSES, ProcessNamespaces, find_process_namespaces
from cnm_bridge.kernel.namespaces.threads import run_in_thread
from cnm_bridge.kernel.netlink.links import Link
from cnm_bridge.kernel.procfs.start_time import find_start
from cnm_bridge.kernel.procfs.sysctl import Baseline, Observation, take_baseline
from cnm_bridge.kernel.records.errors import KernelError, attempt
from cnm_bridge.kernel.records.sandbox_plan import Placement, SandboxPlan
from cnm_bridge.kernel.records.snapshot import IpInterface, Snapshot
from cnm_bridge.kernel.sandbox.session import SandboxSession

__all__ = ["WATCHES_AT_ONCE", "Kernel"]


_NOTHING_ELSE: Final = Observation()

_AT_ONCE: Final = 8
"""How many threads work at once: each has up to four descriptors open."""

WATCHES_AT_ONCE: Final = 8
"""How many threads watch sandboxes besides; who waits for the past should leave some to what happens now."""

T = TypeVar("T")


class Kernel:
    """Staging namespaces, and the links that leave them and come back.

    The namespace it is made in is the host's from then on. Calls for different endpoints may run at the same time,
    calls for the same one must not: the endpoint's lock is the caller's. Every call may be repeated, also after it was
    interrupted at any point. A cancelled call has ended, one way or the other, when its cancellation is raised.

    Args:
        reply_limit_s: How long the kernel may let one netlink reply wait, in seconds.
        processes: Where processes are looked for.
    """

    def __init__(self, *, reply_limit_s: float, processes: Path = PROCESSES) -> None:
        self._reply_limit_s = reply_limit_s
        self._processes = processes
        self._sees_processes = True
        with current_namespace() as fd:
            self._host = namespace_id(fd)
        self._departures = Departures(reply_limit_s=reply_limit_s)
        self._work = asyncio.Semaphore(_AT_ONCE)
        self._watches = asyncio.Semaphore(WATCHES_AT_ONCE)

    async def create_staging(
        self, path: Path, ifname: str = "eth0", observation: Observation = _NOTHING_ELSE
    ) -> Baseline:
        """Make sure that a network namespace is mounted at `path`, ready for CNI ADD.

        In a new one `lo` is up and duplicate address detection is off. One that is there already stays as it is.

        Args:
            path: A file of its own; missing parent directories are made for root alone.
            ifname: What the link will be called there.
            observation: What `take_out` is to look at besides the ordinary.

        Returns:
            What `take_out` compares with.

        Raises:
            KernelError: Nothing is at `path` then, or the namespace is there and cannot be read.
        """
        return await self._run(partial(self._make_staging, path, ifname, observation))

    def _make_staging(self, path: Path, ifname: str, observation: Observation) -> Baseline:
        ensure_namespace(path, host=self._host)
        with attempt("read", str(path)), open_namespace(path) as fd:
            enter(fd, host=self._host)  # one that was there already was not entered
            return take_baseline(observation, ifname)

    def is_namespace(self, path: Path) -> bool:
        """Return whether a network namespace is mounted at `path`; at once."""
        return is_namespace(path)

    async def remove_staging(self, path: Path) -> None:
        """Unmount the namespace at `path` and remove the file; nothing there is success.

        Virtual links in it are destroyed with it, physical ones fall back to the machine's first namespace; the kernel
        does both in its own time.

        Raises:
            KernelError: The file system refused.
        """
        await self._run(partial(remove_namespace, path))

    async def take_out(
        self, path: Path, ifname: str, *, host_name: str, altname: str, baseline: Baseline | None = None
    ) -> Snapshot:
        """Take the snapshot of a link and move it from its staging namespace to the host's.

        Args:
            path: The staging namespace.
            ifname: What the link is called there.
            host_name: What to call it in the host namespace, where it never has another name; at most 15 bytes.
            altname: The alternative name by which `bring_back` knows it again, the endpoint's own; at most 127 bytes.

            baseline: What `create_staging` gave.

        Returns:
            What the plugins had left, before the link lost its addresses and routes.

        Raises:
            NamespaceMissing: Nothing is mounted at `path`.
            LinkMissing: It has no link `ifname`.
            NameTaken: The host namespace has a link of one of the names.
            NotCarriable: There is something that a snapshot cannot hold, such as a further link.
            KernelError: Anything else that the kernel refuses.
                After a failure the link is in staging under `ifname`, down if it was already on its way.
        """
        baseline = baseline or Baseline(observation=_NOTHING_ELSE, ifname=ifname, values={})
        return await self._run(partial(self._mover(path, ifname, altname).out, host_name, baseline))

    async def wait_departed(self, host_name: str) -> None:
        """Wait until the link called `host_name` is not in the host namespace any more, however long that takes.

        Raises:
            KernelError: Links cannot be watched.
        """
        with attempt("watch", f"link {host_name}"):
            await self._departures.wait(host_name)

    async def wait_placed(self, sandbox: Path, altname: str, placement: Placement, limit_s: float) -> bool:
        """Wait until libnetwork is done with a link in its sandbox, and tell whether it is.

        A cancelled wait is over at once.

        Args:
            sandbox: The container's namespace.
            altname: What `take_out` marked the link with.
            placement: What there is when it is done.
            limit_s: For how long, in seconds.

        Raises:
            KernelError: The namespace cannot be read.
        """
        stop_fd = os.eventfd(0)
        try:
            work = partial(self._session(sandbox, altname).wait_placed, placement, stop_fd, limit_s)
            async with self._watches:
                return await run_in_thread(work, stop=partial(os.eventfd_write, stop_fd, 1))
        finally:
            os.close(stop_fd)

    async def sync_sandbox(self, sandbox: Path, altname: str, sandbox_plan: SandboxPlan) -> tuple[str, ...] | None:
        """Bring into a sandbox what it lacks.

        Args:
            sandbox: The container's namespace.
            altname: What `take_out` marked the link with, by which it is found whatever it is called there.
            sandbox_plan: What is to be there.

        Returns:
            What was missing, in words; empty where nothing was, None where the link is not in the sandbox.

        Raises:
            SandboxNotSynced: Something could not be done; the rest is.
            KernelError: The namespace cannot be read.
        """
        return await self._run(partial(self._session(sandbox, altname).sync, sandbox_plan))

    async def withdraw(self, sandbox: Path, altname: str, sandbox_plan: SandboxPlan) -> tuple[str, ...]:
        """Take away from a sandbox what `sync_sandbox` added and what would stay when the link goes: policy rules.

        Args:
            sandbox: The container's namespace; one that is gone is fine, as is one without the link.
            altname: What `take_out` marked the link with.
            sandbox_plan: What `sync_sandbox` received; the rules that are to go.

        Returns:
            Those that were there, in words.

        Raises:
            KernelError: The namespace cannot be read, or a rule not be removed.
        """
        return await self._run(partial(self._session(sandbox, altname).withdraw, sandbox_plan))

    async def bring_back(
        self,
        path: Path,
        ifname: str,
        *,
        host_name: str,
        altname: str,
        sandbox: Path | None,
        addresses: tuple[IpInterface, ...] | None,
    ) -> LinkLocation:
        """Put everything where CNI DEL needs it: the link in its staging namespace, with its addresses.

        The namespace is created again at `path` if it is gone. If the link is gone a veth replaces it, because plugins
        undo what they find: bridge and ptp remove the masquerading of the addresses on the link.

        Args:
            path: The staging namespace.
            ifname: What to call the link there.
            host_name: What `take_out` called it in the host namespace.
            altname: What `take_out` marked it with.
            sandbox: The sandbox to search, None if there is none; it need not exist any more.
            addresses: The addresses that the link must have, in the order of the CNI result; None leaves them
                unchanged, because there is no result.

        Returns:
            Where the link was: after this call it is in staging.

        Raises:
            KernelError: The partial work stays; a later call resumes from there.
        """
        return await self._run(partial(self._mover(path, ifname, altname).back, host_name, sandbox, addresses))

    async def look_at_staged(self, path: Path, ifname: str) -> Snapshot:
        """Return what a link has that is in its staging namespace: its state and its addresses, and no more.

        Args:
            path: The staging namespace.
            ifname: What the link is called there.

        Raises:
            NamespaceMissing: Nothing is mounted at `path`.
            KernelError: It has no such link, or the kernel refused.
        """
        return await self._run(self._mover(path, ifname, altname="").look)

    async def host_links(self) -> tuple[Link, ...]:
        """Return all links of the host namespace.

        Raises:
            KernelError: The kernel refused.
        """
        return await self._run(partial(list_host_links, reply_limit_s=self._reply_limit_s))

    async def delete_host_link(self, link: Link, altname: str) -> None:
        """Delete a virtual link of the host namespace, found by `host_links`; one that is gone is fine.

        A physical one stays, and loses its alternative name `altname`.

        Raises:
            KernelError: The kernel refused.
        """
        await self._run(partial(delete_host_link, link, altname, reply_limit_s=self._reply_limit_s))

    async def find_without_link(self, sandboxes: Mapping[str, str]) -> frozenset[str]:
        """Return the alternative names of the links that are not in their sandboxes, as far as these exist.

        Args:
            sandboxes: By alternative names, the paths of the sandboxes.

        Raises:
            KernelError: The kernel refused.
        """
        look = partial(find_without_link, sandboxes, host=self._host, reply_limit_s=self._reply_limit_s)
        return await self._run(look)

    def distrust_processes(self) -> None:
        """Conclude nothing any more from a process that is not seen: there are others than `/proc` shows.

        So it is for a daemon in a PID namespace of its own. `altnames_in_use` gives those of all mounted namespaces
        then, and `find_process_namespaces` is refused.
        """
        self._sees_processes = False

    async def altnames_in_use(self, staging: Path) -> frozenset[str]:
        """Return the alternative names of all links in namespaces in which processes live, but the host's.

        Where it is not to be seen in which they live: of all links that `altnames_mounted` gives.

        Args:
            staging: The directory of the staging namespaces.

        Raises:
            KernelError: The kernel refused; there may be more.
        """
        look = partial(
            altnames_in_use,
            staging,
            host=self._host,
            reply_limit_s=self._reply_limit_s,
            processes=self._processes,
        )
        found = await self._run(look)
        return found if self._sees_processes else found | await self.altnames_mounted(staging)

    async def altnames_mounted(self, staging: Path) -> frozenset[str]:
        """Return the alternative names of all links in mounted namespaces, but the host's and those of staging.

        Args:
            staging: The directory of the staging namespaces.

        Raises:
            KernelError: The kernel refused; there may be more.
        """
        look = partial(altnames_mounted, staging, host=self._host, reply_limit_s=self._reply_limit_s)
        return await self._run(look)

    async def find_process_namespaces(self) -> ProcessNamespaces:
        """Look into all namespaces in which processes live, but the host's.

        Raises:
            KernelError: The kernel refused, or does not let us look at all processes.
        """
        if not self._sees_processes:
            raise KernelError(
                "look at", "processes", "Docker's processes are in a PID namespace that is not visible from here"
            )
        look = partial(
            find_process_namespaces, host=self._host, reply_limit_s=self._reply_limit_s, processes=self._processes
        )
        return await self._run(look)

    def find_start(self, pid: int) -> int | None:
        """Return when a process has started, in clock ticks since boot, None if there is none; at once.

        Raises:
            KernelError: It is not to be seen.
        """
        with attempt("look at", f"process {pid}"):
            return find_start(pid, self._processes)

    async def gone_sandboxes(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of some sandboxes that Docker has removed, as far as that can be seen."""
        return await self._run(partial(gone_sandboxes, paths))

    async def namespaces_in(self, directory: Path) -> tuple[Path, ...]:
        """Return the paths in a directory where namespaces are mounted, or were: everything there.

        Raises:
            KernelError: The directory cannot be read.
        """
        return await self._run(partial(list_namespaces, directory))

    async def _run(self, work: Callable[[], T]) -> T:
        """Do a piece of work in a thread of its own, when it is its turn."""
        async with self._work:
            return await run_in_thread(work)

    def _session(self, sandbox: Path, altname: str) -> SandboxSession:
        return SandboxSession(host=self._host, sandbox=sandbox, altname=altname, reply_limit_s=self._reply_limit_s)

    def _mover(self, path: Path, ifname: str, altname: str) -> LinkMover:
        return LinkMover(host=self._host, path=path, ifname=ifname, altname=altname, reply_limit_s=self._reply_limit_s)
