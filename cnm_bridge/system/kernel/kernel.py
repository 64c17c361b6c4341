# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`Kernel`: the kernel operations of the daemon and the commands."""

import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from errno import ENODEV, ESRCH
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_spec import JsonObject
from cnm_bridge.core.errors import KernelError, attempt
from cnm_bridge.core.link.plan_sandbox import sets_ipv6, uses_ipv6, without_ipv6
from cnm_bridge.core.link_state import Address, IpInterface, IpNetwork, Observation, Snapshot, find_dynamic
from cnm_bridge.system.kernel.container_files import FileEdit, edit_container_file, has_container_files, read_stored
from cnm_bridge.system.kernel.host import PROCESSES, Host, LinkDepartures, in_thread
from cnm_bridge.system.kernel.link_in_sandbox import LinkInSandbox
from cnm_bridge.system.kernel.netlink.addresses import end_detection, find_addresses
from cnm_bridge.system.kernel.netlink.links import (
    Link,
    delete_link,
    find_link,
    find_link_by_altname,
    list_links,
    remove_altname,
)
from cnm_bridge.system.kernel.netlink.routes import find_destinations
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.netns import (
    ensure_namespace,
    mount_instead,
    namespace_id,
    open_namespace,
    remove_namespace,
)
from cnm_bridge.system.kernel.pin import Pin
from cnm_bridge.system.kernel.processes import (
    SandboxProcess,
    find_inhabited,
    find_outermost,
    find_recent_cgroups,
    find_start,
)
from cnm_bridge.system.kernel.sandboxes import Sandboxes, gone_sandboxes, look_into_sandboxes, mounted_namespaces
from cnm_bridge.system.kernel.staged_link import StagedLink
from cnm_bridge.system.kernel.sysctl import Baseline, is_ipv6_disabled, take_baseline

_HIDDEN: Final = (
    "it is not known which containers run, so an endpoint whose sandbox is mounted stays unless Docker deletes it; run "
    "cni-bridge in the PID namespace of dockerd"
)
_NOT_VISIBLE: Final = "Docker's processes are in a PID namespace that is not visible from here"

log = structlog.get_logger()


class Kernel:
    """Looks at links, namespaces and processes, and changes them.

    The namespace of the thread that creates this object is the host namespace. Each coroutine but `wait_departed` runs
    completely in one short-lived thread and raises `KernelError` if the kernel refuses. Calls for different endpoints
    may run concurrently; for one endpoint the caller must hold its lock. Every call may be repeated after an
    interruption. When `CancelledError` is raised, the work of the call has ended.
    """

    def __init__(self, *, reply_limit_s: float, processes: Path = PROCESSES) -> None:
        self.host = Host(reply_limit_s=reply_limit_s, processes=processes)
        self._departures = LinkDepartures(reply_limit_s=reply_limit_s)
        self._sees_processes = True
        self._unread: frozenset[str] = frozenset()

    @in_thread
    def create_staging(
        self,
        path: Path,
        ifname: str = "eth0",
        observation: Observation = Observation(),  # noqa: B008 - it is frozen
    ) -> Baseline:
        """Ensure that a network namespace is mounted at `path`, ready for CNI ADD; see `ensure_namespace`.

        An existing namespace is not changed. Return the baseline for `StagedLink.take_out`; `observation` is what that
        captures in addition, of a link that will be called `ifname`.
        """
        ensure_namespace(path, host=self.host.id)
        with attempt("read", str(path)), open_namespace(path) as fd:
            self.host.enter(fd)  # ensure_namespace enters only a namespace that it creates
            return take_baseline(observation, ifname)

    @in_thread
    def remove_staging(self, *paths: Path) -> None:
        """Unmount the namespaces at `paths` and remove the files, if they exist.

        The kernel then asynchronously destroys the virtual links in them and moves physical links to the initial
        network namespace. After a failure the following paths are unchanged.
        """
        remove_namespace(*paths)

    @in_thread
    def mount_instead(self, source: Path, path: Path) -> None:
        """Mount the namespace at `source` at `path` as well; see the function. After a failure repeat the call."""
        mount_instead(source, path)

    @in_thread
    def mounted_namespaces(self) -> tuple[Path, ...]:
        """Return the paths where network namespaces are mounted, by Docker or any other program."""
        return mounted_namespaces()

    @in_thread
    def namespaces_in(self, directory: Path) -> tuple[Path, ...]:
        """Return all paths in a directory of namespaces, also of those that are no longer mounted."""
        with attempt("list", str(directory)):
            return tuple(sorted(directory.iterdir())) if directory.is_dir() else ()

    def staged_link(self, path: Path, ifname: str, *, host_name: str, altname: str) -> StagedLink:
        """Return the link in a staging namespace, whether it is there or not."""
        return StagedLink(host=self.host, path=path, ifname=ifname, host_name=host_name, altname=altname)

    def pin(self, path: Path, ifname: str, altname: str) -> Pin:
        """Return the pin at a path, whether it is there or not."""
        return Pin(host=self.host, path=path, ifname=ifname, altname=altname)

    def link_in_sandbox(self, sandbox: Path, altname: str) -> LinkInSandbox:
        """Return the link with an alternative name in a sandbox, whether it is there or not."""
        return LinkInSandbox(host=self.host, sandbox=sandbox, altname=altname)

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

    async def wait_departed(self, host_name: str) -> None:
        """Wait, without a time limit, until the link `host_name` has left the host namespace."""
        with attempt("watch", f"link {host_name}"):
            await self._departures.wait(host_name)

    @in_thread
    def delete_host_link(self, link: Link, altname: str) -> None:
        """Delete a virtual link that `host_links` returned, if it still exists under its name.

        A physical link is kept and loses its alternative name `altname`.
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
        """End duplicate address detection of those host links that exist: they answer for their addresses at once."""
        with attempt("end", "duplicate address detection"), self.host.netlink() as netlink:
            for link in filter(None, (find_link(netlink, name) for name in names)):
                end_detection(netlink, link)

    @in_thread
    def _is_ipv6_disabled(self, sandbox: Path) -> bool:
        """Return whether IPv6 is disabled on all links of a sandbox (`net.ipv6.conf.all.disable_ipv6=1`).

        Not if the sandbox does not exist or is the host namespace.
        """
        with attempt("look into", str(sandbox)), self.host.inside_sandbox(sandbox) as netlink:
            return netlink is not None and is_ipv6_disabled()

    async def as_allowed(self, sandbox: Path, snapshot: Snapshot) -> Snapshot:
        """Return a link's snapshot as the sandbox allows it: without IPv6, if that is disabled on all links there."""
        is_concerned = uses_ipv6(snapshot) or sets_ipv6(snapshot)
        return without_ipv6(snapshot) if is_concerned and await self._is_ipv6_disabled(sandbox) else snapshot

    @in_thread
    def dynamic_addresses(self, sandboxes: Mapping[str, str]) -> Mapping[str, tuple[IpInterface, ...]]:
        """Return the addresses of links that the kernel has learnt, such as from router advertisements.

        Takes some 0.3 ms for each link. Both mappings are by alternative name; the given one has the paths of the
        sandboxes, of which those that cannot be read are ignored.
        """
        learnt: dict[str, tuple[IpInterface, ...]] = {}
        for altname, path in sandboxes.items():
            with suppress(KernelError), attempt("look into", path), self.host.inside_sandbox(Path(path)) as netlink:
                link = None if netlink is None else find_link_by_altname(netlink, altname)
                if netlink is not None and link is not None and (dynamic := find_dynamic(_addresses_of(netlink, link))):
                    learnt[altname] = dynamic
        return learnt

    async def look_into_sandboxes(self, known: Iterable[str] = ()) -> Sandboxes:
        """Return what is in Docker's sandboxes now. One that cannot be read is logged, and says nothing about others.

        `known` has the paths of further sandboxes, such as those in records. They need not exist.
        """
        paths = tuple(known)
        sandboxes = await self.host.run(lambda: look_into_sandboxes(self.host, paths))
        errors = frozenset(sandboxes.unread.values())
        for error in sorted(errors - self._unread):
            log.warning("sandbox.unread", error=error)
        self._unread = errors
        return sandboxes if self._sees_processes else replace(sandboxes, inhabited=None)

    @in_thread
    def gone_sandboxes(self, paths: Collection[str]) -> frozenset[str]:
        """Return those of the given sandboxes that Docker has visibly removed."""
        return gone_sandboxes(paths)

    def distrust_processes(self) -> None:
        """Record, and log once, that `/proc` does not show all processes: the daemon is in a PID namespace of its own.

        From then on it is not known in which sandboxes processes run, and no process is found.
        """
        if self._sees_processes:
            log.warning("processes.hidden", consequence=_HIDDEN)
        self._sees_processes = False

    def find_start(self, pid: int) -> int | None:
        """Return the start time of a process in clock ticks since boot, None if it does not exist. Does not block."""
        with attempt("look at", f"process {pid}"):
            return find_start(pid, self.host.processes)

    @in_thread
    def find_latest_first_process(self, sandbox: Path) -> SandboxProcess | None:
        """Return the process in a sandbox that has PID 1 in its own PID namespace; see `find_outermost`.

        When it ends, all processes of its container end. A container on the host's PID namespace has none: None. Of
        several it is the one that was made last.
        """
        return next(self._first_processes(sandbox), None)

    @in_thread
    def find_first_processes(self, sandbox: Path) -> tuple[SandboxProcess, ...]:
        """Return all of these processes, the oldest first. Looks at each process of the host."""
        return tuple(sorted(self._first_processes(sandbox), key=lambda process: process.started))

    @in_thread
    def find_container_process(self, sandbox: Path) -> SandboxProcess | None:
        """Return a process in a sandbox that sees the files that dockerd mounts in the container, None if none does.

        It need not be of the container that the sandbox belongs to: those that share a sandbox (`--network container:`)
        have the same files.
        """
        with attempt("look for processes of", str(sandbox)):
            for process in self._outermost(sandbox):
                with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    if has_container_files(self.host.processes / str(process.pid)):
                        return process
        return None

    @in_thread
    def find_recent_cgroups(self) -> frozenset[str]:
        """Return the cgroups of the latest processes: the text of `/proc/<pid>/cgroup`."""
        with attempt("look for", "the latest processes"):
            return find_recent_cgroups(self.host.processes) if self._sees_processes else frozenset()

    @in_thread
    def is_inhabited(self, sandbox: Path) -> bool:
        """Return whether any process is in a sandbox. Looks at each process of the host.

        Raise `KernelError` if the sandbox does not exist, or not all processes are visible.
        """
        with attempt("look for processes of", str(sandbox)):
            with open_namespace(sandbox) as fd:
                namespace = namespace_id(fd)
            inhabited = find_inhabited(self.host.processes) if self._sees_processes else None
        if inhabited is None:
            raise KernelError("look for processes of", str(sandbox), _NOT_VISIBLE)
        return namespace in inhabited

    @in_thread
    def edit_container_file(self, process: SandboxProcess, name: str, edit: FileEdit) -> bool:
        """Edit a file that dockerd mounts in the container of a process; return whether it has changed.

        Raise `FileKept` if it stays as it is, see `container_files.edit_container_file`.
        """
        with attempt("edit", f"/etc/{name} of process {process.pid}"):
            if find_start(process.pid, self.host.processes) != process.started:
                raise ProcessLookupError(ESRCH, "it has ended")  # another container's may have its ID
            return edit_container_file(self.host.processes / str(process.pid), name, edit)

    @in_thread
    def read_container(self, pid: int, container_id: str) -> JsonObject | None:
        """Return what dockerd has stored about a container, see `read_stored`; `pid` is its first process."""
        with attempt("read", f"what Docker has stored about container {container_id}"):
            return read_stored(self.host.processes / str(pid), container_id, "config.v2.json")

    def _first_processes(self, sandbox: Path) -> Iterator[SandboxProcess]:
        return (process for process in self._outermost(sandbox) if process.is_first)

    def _outermost(self, sandbox: Path) -> Iterator[SandboxProcess]:
        with attempt("look for processes of", str(sandbox)):
            yield from find_outermost(sandbox, self.host.processes) if self._sees_processes else ()


def _addresses_of(netlink: Netlink, link: Link) -> tuple[Address, ...]:
    """Return the addresses of a link, none if it is gone since it was listed."""
    try:
        return find_addresses(netlink, link)
    except OSError as exc:
        if exc.errno != ENODEV:
            raise
        return ()
