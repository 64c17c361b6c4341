# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`Kernel`: every kernel operation of the daemon; those that only look at the host are inherited from `KernelView`.

Each coroutine runs completely in one short-lived thread.
"""

import asyncio
import os
from collections.abc import Collection
from errno import ESRCH
from functools import partial
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cnm_bridge.core.link_state import IpAddress, IpInterface, Observation, Placement, SandboxPlan, Snapshot, attempt
from cnm_bridge.core.planning.container_file import ContainerFile, Edit, FileEdit
from cnm_bridge.system.kernel.link_departures import LinkDepartures
from cnm_bridge.system.kernel.link_mover import LinkLocation
from cnm_bridge.system.kernel.namespaces.first_process import SandboxProcess, find_start
from cnm_bridge.system.kernel.namespaces.netns import (
    ensure_namespace,
    enter,
    make_mount_point,
    mount_instead,
    open_namespace,
    remove_namespace,
    run_in_thread,
)
from cnm_bridge.system.kernel.namespaces.sandboxes import PROCESSES
from cnm_bridge.system.kernel.netlink.links import Link
from cnm_bridge.system.kernel.sandbox.container_file import edit_container_file
from cnm_bridge.system.kernel.sandbox.docker_files import read_stored
from cnm_bridge.system.kernel.sandbox.pin import Finish, Pin
from cnm_bridge.system.kernel.sysctl import Baseline, take_baseline
from cnm_bridge.system.kernel.view import KernelView

_NOTHING_ELSE: Final = Observation()

WATCHES_AT_ONCE: Final = 8
"""Additional threads that watch sandboxes. Syncs of the previous run's endpoints should leave some of them free."""


class Kernel(KernelView):
    """Creates staging namespaces, and moves links out of them and back.

    The namespace of the thread that creates this object is the host namespace. Calls for different endpoints may run
    concurrently; for one endpoint the caller must hold its lock. Every call is idempotent and may be repeated after an
    interruption at any point. When `CancelledError` is raised, the work of the call has ended.

    Args:
        reply_limit_s: Time limit of one netlink reply, in seconds.
        processes: The directory to find processes in.
    """

    def __init__(self, *, reply_limit_s: float, processes: Path = PROCESSES) -> None:
        super().__init__(reply_limit_s=reply_limit_s, processes=processes)
        self._departures = LinkDepartures(reply_limit_s=reply_limit_s)
        self._watches = asyncio.Semaphore(WATCHES_AT_ONCE)

    async def create_staging(
        self, path: Path, ifname: str = "eth0", observation: Observation = _NOTHING_ELSE
    ) -> Baseline:
        """Ensure that a network namespace is mounted at `path`, ready for CNI ADD.

        In a new namespace `lo` is up and duplicate address detection is off. An existing one is not changed.

        Args:
            path: The file to mount it on; missing parent directories are created with access for root only.
            ifname: The name that the link will have in it.
            observation: What `take_out` captures in addition.

        Returns:
            The baseline for `take_out`.

        Raises:
            KernelError: The namespace could not be created, and nothing is at `path`; or it exists and cannot be read.
        """
        return await self._run(partial(self._make_staging, path, ifname, observation))

    def _make_staging(self, path: Path, ifname: str, observation: Observation) -> Baseline:
        ensure_namespace(path, host=self._host)
        with attempt("read", str(path)), open_namespace(path) as fd:
            enter(fd, host=self._host)  # ensure_namespace enters only a namespace that it creates
            return take_baseline(observation, ifname)

    async def remove_staging(self, *paths: Path) -> None:
        """Unmount the namespaces at `paths` and remove the files, if they exist.

        The kernel then asynchronously destroys the virtual links in them and moves physical links to the initial
        network namespace.

        Raises:
            KernelError: An unmount or a removal failed; the paths after that one are unchanged.
        """
        await self._run(partial(remove_namespace, *paths))

    async def take_out(
        self, path: Path, ifname: str, *, host_name: str, altname: str, baseline: Baseline | None = None
    ) -> Snapshot:
        """Take the snapshot of a link and move the link from its staging namespace to the host namespace.

        After a failure the link is in the staging namespace under `ifname`; it may be down.

        Args:
            path: The staging namespace.
            ifname: The name of the link in it.
            host_name: The name of the link in the host namespace, at most 15 bytes.
            altname: The alternative name by which `bring_back` finds the link, at most 127 bytes; unique.
            baseline: The value that `create_staging` returned.

        Returns:
            What the plugins left, read before the move removes the link's addresses and routes.

        Raises:
            NamespaceMissing: Nothing is mounted at `path`.
            LinkMissing: The namespace has no link `ifname`.
            NameTaken: The host namespace has a link with one of the names.
            NotCarriable: The namespace has something that a snapshot cannot hold, such as a second link.
            KernelError: The kernel refused a step.
        """
        baseline = baseline or Baseline(observation=_NOTHING_ELSE, ifname=ifname, values={})
        return await self._run(partial(self._mover(path, ifname, altname).out, host_name, baseline))

    async def wait_departed(self, host_name: str) -> None:
        """Wait, without a time limit, until the link `host_name` has left the host namespace.

        Raises:
            KernelError: Links cannot be watched.
        """
        with attempt("watch", f"link {host_name}"):
            await self._departures.wait(host_name)

    async def wait_placed(self, sandbox: Path, altname: str, placement: Placement, limit_s: float) -> bool:
        """Wait until libnetwork has configured a link in its sandbox. A cancellation ends the wait immediately.

        Returns:
            Whether libnetwork has configured it within the limit.

        Raises:
            KernelError: The namespace cannot be read.
        """
        stop_fd = os.eventfd(0)
        try:
            work = partial(self._link_in_sandbox(sandbox, altname).wait_placed, placement, stop_fd, limit_s)
            async with self._watches:
                return await run_in_thread(work, stop=partial(os.eventfd_write, stop_fd, 1))
        finally:
            os.close(stop_fd)

    async def sync_sandbox(self, sandbox: Path, altname: str, sandbox_plan: SandboxPlan) -> tuple[str, ...] | None:
        """Add to a sandbox what it lacks of the plan.

        Args:
            sandbox: The container's namespace.
            altname: The alternative name that `take_out` gave the link; its name in the sandbox does not matter.
            sandbox_plan: What the sandbox must have.

        Returns:
            What was missing, in words; empty if nothing was, None if the link is not in the sandbox.

        Raises:
            SandboxNotSynced: Some of it could not be added; the rest has been.
            KernelError: The namespace cannot be read.
        """
        return await self._run(partial(self._link_in_sandbox(sandbox, altname).sync, sandbox_plan))

    async def announce(self, sandbox: Path, altname: str) -> tuple[IpAddress, ...] | None:
        """Announce the addresses of a link in its sandbox to its neighbours, see `sandbox/announcement.py`.

        Returns:
            The addresses, none if the link cannot announce any; None if the link is not in the sandbox.

        Raises:
            KernelError: The kernel refused.
        """
        return await self._run(self._link_in_sandbox(sandbox, altname).announce)

    async def withdraw(self, sandbox: Path, altname: str, sandbox_plan: SandboxPlan) -> tuple[str, ...]:
        """Remove the policy rules that `sync_sandbox` added: the kernel does not remove them with the link.

        Args:
            sandbox: The container's namespace. Nothing is done if it does not exist or the link is not in it.
            altname: The alternative name that `take_out` gave the link.
            sandbox_plan: The plan that `sync_sandbox` received.

        Returns:
            The rules that have been removed, in words.

        Raises:
            KernelError: The namespace cannot be read, or a rule cannot be removed.
        """
        return await self._run(partial(self._link_in_sandbox(sandbox, altname).withdraw, sandbox_plan))

    async def bring_back(
        self,
        path: Path,
        ifname: str,
        *,
        host_name: str,
        altname: str,
        sandbox: Path | None,
        addresses: tuple[IpInterface, ...] | None,
        is_device: bool,
    ) -> LinkLocation:
        """Prepare CNI DEL: move the link back to its staging namespace and give it its addresses.

        A missing namespace is created again. A veth replaces a missing link, because plugins undo what they find:
        bridge and ptp remove the masquerading of the addresses on the link, and host-device gives the link the name
        that is its alias and moves it to the host namespace. It goes with the staging namespace, which has its peer.

        Args:
            path: The staging namespace.
            ifname: The name of the link in it.
            host_name: The name that `take_out` gave the link in the host namespace.
            altname: The alternative name that `take_out` gave it.
            sandbox: The sandbox to search, None if there is none; it may have been removed.
            addresses: The addresses that the link must have, in the order of the CNI result; None leaves them
                unchanged.
            is_device: Whether DEL returns the link to the host, as it does if the link is not virtual. Then it loses
                its alternative name, and a veth that replaces it has the alias `host_name`.

        Returns:
            Where the link was found.

        Raises:
            KernelError: A step failed. What has been done stays; a later call resumes.
        """
        back = self._mover(path, ifname, altname).back
        return await self._run(partial(back, host_name, sandbox, addresses, is_device=is_device))

    @staticmethod
    def prepare_pin(pin: Path) -> None:
        """Ensure that there is a file for a pin; missing parent directories are created with access for root only.

        Raises:
            KernelError: The file cannot be created.
        """
        make_mount_point(pin)  # as quick as the file of a running plugin, which is also made without a thread

    async def pin_sandbox(self, sandbox: Path, pin: Path, ifname: str) -> bool:
        """Mount a sandbox at `pin` as well, and prepare it for plugins that make a link in it.

        Duplicate address detection is off and IPv6 is on for links that are made in it, until `finish_in_sandbox` or
        `find_pinned_link`, also if that is called by the next run of the daemon.

        Args:
            sandbox: The container's namespace.
            pin: The file to mount it on; missing parent directories are created with access for root only.
            ifname: The name that the link will have.

        Returns:
            Whether such a link can be made: not if the sandbox does not exist, is the host namespace, or has a link of
            that name.

        Raises:
            KernelError: The sandbox cannot be mounted or prepared.
        """
        return await self._run(partial(self._pin(pin, ifname, altname="").make, sandbox))

    async def finish_in_sandbox(self, pin: Path, ifname: str, *, altname: str, finish: Finish) -> Snapshot:
        """Set up a link that plugins made in a pinned sandbox, and mark it with its alternative name.

        The default routes that libnetwork adds for the gateway endpoint are removed, because it adds them exclusively.

        Args:
            pin: The pin.
            ifname: The name that the plugins gave the link.
            altname: The alternative name by which the link is found, at most 127 bytes; unique.
            finish: What the link must be like.

        Returns:
            The link with its addresses and all its routes, including the removed ones.

        Raises:
            LinkMissing: The sandbox has no link `ifname`.
            KernelError: The kernel refused a step.
        """
        return await self._run(partial(self._pin(pin, ifname, altname).finish, finish))

    async def find_pinned_link(
        self, pin: Path, ifname: str, altname: str, mac: str | None = None, *, plugins_have_run: bool = False
    ) -> str | None:
        """Return the present name of a link in a pinned sandbox, None if it is not there.

        It is found by its alternative name. Plugins that failed or were interrupted leave it without one. Then it is
        found by its name: by the first call after the plugins, or with its MAC; it receives the alternative name.
        Otherwise a name alone may be another network's or the container's. Settings that are changed for plugins are
        restored.

        Args:
            pin: The pin.
            ifname: The name that the plugins gave the link.
            altname: The alternative name.
            mac: Its MAC, None if it is not known.
            plugins_have_run: Whether plugins that make the link may have run.

        Raises:
            KernelError: The sandbox cannot be read.
        """
        look = partial(self._pin(pin, ifname, altname).find, mac, plugins_have_run=plugins_have_run)
        return await self._run(look)

    async def mount_instead(self, source: Path, path: Path) -> None:
        """Mount the namespace at `source` at `path` as well, instead of what is mounted there.

        Raises:
            NamespaceMissing: Nothing is mounted at `source`.
            KernelError: An unmount or a mount failed; repeat the call.
        """
        await self._run(partial(mount_instead, source, path))

    async def delete_host_link(self, link: Link, altname: str) -> None:
        """Delete a virtual link that `host_links` returned, if it still exists.

        A physical link is kept and loses its alternative name `altname`.

        Raises:
            KernelError: The kernel refused.
        """
        await self._run(partial(self._reader.delete_host_link, link, altname))

    async def end_detection(self, names: Collection[str]) -> None:
        """End duplicate address detection of host links, by name: they answer for their addresses at once.

        Links that do not exist are ignored.

        Raises:
            KernelError: The kernel refused.
        """
        await self._run(partial(self._reader.end_detection, names))

    async def edit_container_file(self, process: SandboxProcess, file: ContainerFile, edit: Edit) -> FileEdit | None:
        """Edit a file that dockerd mounts in the container of a process; return what `edit` returned.

        None if another file is mounted there, which is left alone.

        Raises:
            KernelError: The process has ended, or the file cannot be read or written.
        """

        def work() -> FileEdit | None:
            with attempt("edit", f"/etc/{file.value} of process {process.pid}"):
                if find_start(process.pid, self._processes) != process.started:
                    raise ProcessLookupError(ESRCH, "it has ended")  # another container's may have its ID
                return edit_container_file(self._processes / str(process.pid), file, edit)

        return await self._run(work)

    async def read_container(self, pid: int, container_id: str) -> JsonObject | None:
        """Return what dockerd has stored about a container, see `read_stored`; `pid` is its first process.

        Raises:
            KernelError: The process has ended.
        """

        def work() -> JsonObject | None:
            with attempt("read", f"what Docker has stored about container {container_id}"):
                return read_stored(self._processes / str(pid), container_id, "config.v2.json")

        return await self._run(work)

    def _pin(self, path: Path, ifname: str, altname: str) -> Pin:
        return Pin(host=self._host, path=path, ifname=ifname, altname=altname, reply_limit_s=self._reply_limit_s)
