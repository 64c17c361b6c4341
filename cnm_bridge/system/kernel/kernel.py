# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`Kernel`: the kernel operations of the daemon; those that only look are inherited from `KernelView`."""

from collections.abc import Collection
from errno import ESRCH
from pathlib import Path

from cni_bridge_spec import JsonObject
from cnm_bridge.core.errors import attempt
from cnm_bridge.core.link_state import Observation
from cnm_bridge.system.kernel.container_files import FileEdit, edit_container_file, read_stored
from cnm_bridge.system.kernel.host import PROCESSES, LinkDepartures, in_thread
from cnm_bridge.system.kernel.netlink.addresses import end_detection
from cnm_bridge.system.kernel.netlink.links import Link, delete_link, find_link, remove_altname
from cnm_bridge.system.kernel.netns import ensure_namespace, mount_instead, open_namespace, remove_namespace
from cnm_bridge.system.kernel.pin import Pin
from cnm_bridge.system.kernel.processes import SandboxProcess, find_start
from cnm_bridge.system.kernel.staged_link import StagedLink
from cnm_bridge.system.kernel.sysctl import Baseline, take_baseline
from cnm_bridge.system.kernel.view import KernelView


class Kernel(KernelView):
    """Makes and removes staging namespaces, and changes links.

    Calls for different endpoints may run concurrently; for one endpoint the caller must hold its lock. Every call is
    idempotent and may be repeated after an interruption at any point. When `CancelledError` is raised, the work of the
    call has ended.
    """

    def __init__(self, *, reply_limit_s: float, processes: Path = PROCESSES) -> None:
        super().__init__(reply_limit_s=reply_limit_s, processes=processes)
        self._departures = LinkDepartures(reply_limit_s=reply_limit_s)

    @in_thread
    def create_staging(
        self,
        path: Path,
        ifname: str = "eth0",
        observation: Observation = Observation(),  # noqa: B008 - it is frozen
    ) -> Baseline:
        """Ensure that a network namespace is mounted at `path`, ready for CNI ADD.

        In a new namespace `lo` is up and duplicate address detection is off. An existing one is not changed.

        Args:
            path: The file to mount it on; missing parent directories are created with access for root only.
            ifname: The name that the link will have in it.
            observation: What `StagedLink.take_out` captures in addition.

        Returns:
            The baseline for `StagedLink.take_out`.

        Raises:
            KernelError: The namespace could not be created, and nothing is at `path`; or it exists and cannot be read.
        """
        ensure_namespace(path, host=self.host.id)
        with attempt("read", str(path)), open_namespace(path) as fd:
            self.host.enter(fd)  # ensure_namespace enters only a namespace that it creates
            return take_baseline(observation, ifname)

    @in_thread
    def remove_staging(self, *paths: Path) -> None:
        """Unmount the namespaces at `paths` and remove the files, if they exist.

        The kernel then asynchronously destroys the virtual links in them and moves physical links to the initial
        network namespace.

        Raises:
            KernelError: An unmount or a removal failed; the paths after that one are unchanged.
        """
        remove_namespace(*paths)

    @in_thread
    def mount_instead(self, source: Path, path: Path) -> None:
        """Mount the namespace at `source` at `path` as well, instead of what is mounted there.

        Raises:
            NamespaceMissing: Nothing is mounted at `source`.
            KernelError: An unmount or a mount failed; repeat the call.
        """
        mount_instead(source, path)

    def staged_link(self, path: Path, ifname: str, *, host_name: str, altname: str) -> StagedLink:
        """Return the link in a staging namespace, whether it is there or not; see `StagedLink`."""
        return StagedLink(host=self.host, path=path, ifname=ifname, host_name=host_name, altname=altname)

    def pin(self, path: Path, ifname: str, altname: str) -> Pin:
        """Return the pin at a path, whether it is there or not; see `Pin`."""
        return Pin(host=self.host, path=path, ifname=ifname, altname=altname)

    async def wait_departed(self, host_name: str) -> None:
        """Wait, without a time limit, until the link `host_name` has left the host namespace.

        Raises:
            KernelError: Links cannot be watched.
        """
        with attempt("watch", f"link {host_name}"):
            await self._departures.wait(host_name)

    @in_thread
    def delete_host_link(self, link: Link, altname: str) -> None:
        """Delete a virtual link that `host_links` returned, if it still exists under its name.

        A physical link is kept and loses its alternative name `altname`.

        Raises:
            KernelError: The kernel refused.
        """
        with attempt("delete", f"link {link.state.name}"), self.host.netlink() as netlink:
            present = find_link(netlink, link.state.name)
            if present is None or present.index != link.index:
                return
            if present.state.kind is not None:
                delete_link(netlink, present)
            elif altname in present.altnames:
                remove_altname(netlink, present, altname)

    @in_thread
    def end_detection(self, names: Collection[str]) -> None:
        """End duplicate address detection of host links, by name: they answer for their addresses at once.

        Links that do not exist are ignored.

        Raises:
            KernelError: The kernel refused.
        """
        with attempt("end", "duplicate address detection"), self.host.netlink() as netlink:
            for link in filter(None, (find_link(netlink, name) for name in names)):
                end_detection(netlink, link)

    @in_thread
    def edit_container_file(self, process: SandboxProcess, name: str, edit: FileEdit) -> bool:
        """Edit a file that dockerd mounts in the container of a process; return whether it has changed.

        Raises:
            FileKept: It stays as it is, see `container_files.edit_container_file`.
            KernelError: The process has ended, or the file cannot be read or written.
        """
        with attempt("edit", f"/etc/{name} of process {process.pid}"):
            if find_start(process.pid, self.host.processes) != process.started:
                raise ProcessLookupError(ESRCH, "it has ended")  # another container's may have its ID
            return edit_container_file(self.host.processes / str(process.pid), name, edit)

    @in_thread
    def read_container(self, pid: int, container_id: str) -> JsonObject | None:
        """Return what dockerd has stored about a container, see `read_stored`; `pid` is its first process.

        Raises:
            KernelError: The process has ended.
        """
        with attempt("read", f"what Docker has stored about container {container_id}"):
            return read_stored(self.host.processes / str(pid), container_id, "config.v2.json")
