# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Moves a link out of its staging namespace for Docker, and back into it for CNI DEL.

Each call runs completely in one short-lived thread. No state is kept between calls: the kernel knows where the link is.
The link is identified by an alternative name, which it keeps when Docker moves or renames it. A link without it is
touched only if it has our own name in the host namespace, or the name of the attachment where plugins run DEL; or if it
is alone in a staging namespace, or has there the name that the list gives a device.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from errno import EEXIST
from pathlib import Path

from cnm_bridge.core.errors import KernelError, LinkMissing, attempt
from cnm_bridge.core.link_state import IpInterface, Observation, Snapshot
from cnm_bridge.system.kernel.capture import capture, is_kernels_own
from cnm_bridge.system.kernel.host import Host, in_thread
from cnm_bridge.system.kernel.netlink.addresses import add_addresses, find_addresses, remove_addresses
from cnm_bridge.system.kernel.netlink.links import (
    Link,
    add_altname,
    delete_link,
    find_link,
    find_link_by_altname,
    get_link,
    list_links,
    make_veth,
    move_link,
    remove_altname,
    rename_link,
    set_alias,
)
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.netns import current_namespace, ensure_namespace, namespace_id, open_namespace
from cnm_bridge.system.kernel.sandboxes import lost_sandboxes
from cnm_bridge.system.kernel.sysctl import Baseline


class LinkLocation(StrEnum):
    """The namespace in which the link of an endpoint was found."""

    HOST = "host"
    SANDBOX = "sandbox"
    STAGING = "staging"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedLink:
    """A link that plugins make in the staging namespace at `path`.

    Every call is idempotent and may be repeated after an interruption at any point. It raises `KernelError` if the
    kernel refuses a step, or `NamespaceMissing` if nothing is mounted at `path`. Calls for one link must not run
    concurrently.

    Attributes:
        ifname: The name of the link in it.
        host_name: The name of the link in the host namespace, at most 15 bytes.
        altname: The alternative name of the link, at most 127 bytes: a prefix, a hyphen, the attachment's ID.
    """

    host: Host
    path: Path
    ifname: str
    host_name: str
    altname: str

    @in_thread
    def take_out(self, baseline: Baseline | None = None) -> Snapshot:
        """Take the snapshot of the link, which is what the plugins left, and move the link to the host namespace.

        After a failure the link is in the staging namespace under `ifname`; it may be down.

        Raises:
            LinkMissing: The namespace has no link `ifname`.
            NotCarriable: The namespace has something that a snapshot cannot hold, such as a second link.
            KernelError: The kernel refused a step, such as a name that another link of the host namespace has.
        """
        baseline = baseline or Baseline(observation=Observation(), ifname=self.ifname, values={})
        operation, subject = "move out", str(self)
        with attempt(operation, subject), self._in_host_netns() as host_fd, self._in_staging() as (staging, _):
            link = find_link(staging, self.ifname)
            if link is None:
                raise LinkMissing(operation, subject, tuple(other.state.name for other in list_links(staging)))
            snapshot = capture(staging, link, baseline, reply_limit_s=self.host.reply_limit_s)
            if self.altname not in link.altnames:
                add_altname(staging, link, self.altname)
            # The link is renamed before the move. In a combined request the kernel moves first, and the host's network
            # services would see a second eth0 appear.
            rename_link(staging, link, self.host_name)
            try:
                move_link(staging, link, host_fd)
            except OSError as exc:
                rename_link(staging, link, self.ifname)
                if exc.errno == EEXIST:
                    names = f"{self.host_name} or {self.altname}"
                    taken = f"the host namespace already has a link called {names}"
                    raise KernelError(operation, subject, taken, EEXIST) from exc
                raise
        return snapshot

    @in_thread
    def bring_back(
        self,
        *,
        sandbox: Path | None,
        addresses: tuple[IpInterface, ...] | None,
        is_device: bool,
        device: str | None = None,
        is_shared: bool = False,
    ) -> LinkLocation:
        """Prepare CNI DEL: move the link back to its staging namespace, and return where it was found.

        A missing namespace is created again. A veth replaces a missing link, because plugins undo what they find:
        bridge and ptp remove the masquerading of the addresses on the link, and host-device gives the link the name
        that is its alias and moves it to the host namespace. It goes with the staging namespace, which has its peer.

        Args:
            sandbox: The sandbox to search, None if there is none; it may have been removed.
            addresses: The addresses that the link must have, in the order of the CNI result; None leaves them
                unchanged.
            is_device: Whether DEL returns the link to the host, as it does if the link is not virtual. Then it loses
                its alternative name. If it is virtual and has no alias, it gets one: `device`, or `host_name` if that
                is not known, or if it is a veth that replaces the link.
            device: The name on the host of such a link, None if it is not known.
            is_shared: Whether the namespace is a sandbox, where links of other networks may be.
        """
        with attempt("bring back", str(self)), self._in_host_netns(), self.host.netlink() as host_netns:
            ensure_namespace(self.path, host=self.host.id)
            with self._in_staging() as (staging, staging_fd):
                where = self._retrieve(
                    host_netns, sandbox, staging, staging_fd, may_be_unnamed=is_device and not is_shared, device=device
                )
                link = get_link(staging, self.ifname)
                if addresses is not None:
                    if where is LinkLocation.STAGING:  # otherwise it has none: a move removes them
                        remove_addresses(staging, link)
                    add_addresses(staging, link, addresses)
                if self.altname in link.altnames and (is_device or link.state.kind is None):
                    remove_altname(staging, link, self.altname)  # a device of the host outlives the endpoint
                if is_device and link.state.kind is not None and not link.alias:  # a device has one since ADD
                    set_alias(staging, link, self._alias_for(link, device))
        return where

    @in_thread
    def look(self) -> Snapshot:
        """Return a snapshot of the link in its staging namespace, with its state and addresses only."""
        with attempt("look at", str(self)), self._in_staging() as (staging, _):
            link = get_link(staging, self.ifname)
            return Snapshot(link=link.state, addresses=find_addresses(staging, link), routes=())

    def __str__(self) -> str:
        return f"link {self.ifname} of {self.path}"

    def _retrieve(
        self,
        host_netns: Netlink,
        sandbox: Path | None,
        staging: Netlink,
        staging_fd: int,
        *,
        may_be_unnamed: bool,
        device: str | None,
    ) -> LinkLocation:
        """Find the link and bring it into staging under its name; make a veth if it no longer exists."""
        host_link = find_link_by_altname(host_netns, self.altname) or self._find_unmarked(host_netns)
        if self._fetch(host_netns, host_link, staging, staging_fd):
            return LinkLocation.HOST
        link = find_link_by_altname(staging, self.altname)
        if link is not None:
            if link.state.name != self.ifname:  # `out` was interrupted
                rename_link(staging, link, self.ifname)
            return LinkLocation.STAGING
        if sandbox is not None and self._fetch_from(sandbox, staging, staging_fd):
            return LinkLocation.SANDBOX
        if may_be_unnamed:
            self._name_device(staging, device)
        if find_link(staging, self.ifname) is not None:  # it never left, or this is the veth of an earlier call
            return LinkLocation.STAGING
        if sandbox is not None and self._fetch_from_lost(staging, staging_fd):
            return LinkLocation.SANDBOX
        make_veth(staging, self.ifname)
        return LinkLocation.GONE

    def _name_device(self, staging: Netlink, name: str | None) -> None:
        """Give a device its name in staging, and the alias by which `host-device` returns it, if it was killed before.

        ADD of 1.1.1 moves the device here, then sets its alias, then renames it; DEL goes the same way back. A virtual
        device would end with the namespace. If its name on the host is not known, it is the only link: the veth of an
        earlier call has its peer here.
        """
        links = [link for link in list_links(staging) if not is_kernels_own(link)]
        found = [link for link in links if name is None or name in {link.state.name, *link.altnames}]
        if len(found) != 1 or find_link(staging, self.ifname) is not None:
            return
        (device,) = found
        is_virtual = device.state.kind is not None  # the kernel returns a physical one
        if is_virtual and device.alias in {"", device.state.name} and not self._is_of_another(device):
            set_alias(staging, device, device.state.name)
            rename_link(staging, device, self.ifname)

    def _alias_for(self, link: Link, device: str | None) -> str:
        """Return the alias for a link that has none: `host-device` gives the link this name on the host."""
        is_stand_in = link.has_peer_beside
        return self.host_name if is_stand_in or device is None or device in link.altnames else device

    def _find_unmarked(self, host_netns: Netlink) -> Link | None:
        """Find the link in the host namespace by its name: a container may have removed the alternative name."""
        link = find_link(host_netns, self.host_name)
        return None if link is None or self._is_of_another(link) else link

    def _is_of_another(self, link: Link) -> bool:
        """Return whether a link without our alternative name has that of another attachment."""
        mark = self.altname.rpartition("-")[0]
        return any(name.rpartition("-")[0] == mark for name in link.altnames)

    def _fetch(self, source: Netlink, link: Link | None, staging: Netlink, staging_fd: int) -> bool:
        """Move the link from the source's namespace into staging; return False if the link is None."""
        if link is None:
            return False
        stand_in = find_link(staging, self.ifname)
        if stand_in is not None:  # from an earlier call that did not find the link
            delete_link(staging, stand_in)
        move_link(source, link, staging_fd, self.ifname)
        return True

    def _fetch_from(self, sandbox: Path, staging: Netlink, staging_fd: int) -> bool:
        """Move the link from the namespace at `sandbox`, if that exists; leave the thread in staging."""
        with self._returning(staging_fd), self.host.inside_sandbox(sandbox) as inside:
            return inside is not None and self._fetch(
                inside, find_link_by_altname(inside, self.altname), staging, staging_fd
            )

    def _fetch_from_lost(self, staging: Netlink, staging_fd: int) -> bool:
        """Move the link from a sandbox that Docker has unmounted although a process runs there; end in staging."""
        with self._returning(staging_fd):
            for _ in lost_sandboxes(self.host, besides=[namespace_id(staging_fd)]):
                with suppress(OSError), self.host.netlink() as inside:
                    if self._fetch(inside, find_link_by_altname(inside, self.altname), staging, staging_fd):
                        return True
        return False

    @contextmanager
    def _returning(self, staging_fd: int) -> Iterator[None]:
        """Move the thread into staging at the end of the block."""
        try:
            yield
        finally:
            self.host.enter(staging_fd)

    @contextmanager
    def _in_host_netns(self) -> Iterator[int]:
        """Open the host namespace, in which every thread starts."""
        with current_namespace() as fd:
            if namespace_id(fd) != self.host.id:
                raise KernelError("begin in", "namespace", "it is not the host's")
            yield fd

    @contextmanager
    def _in_staging(self) -> Iterator[tuple[Netlink, int]]:
        """Move the thread into staging; yield a netlink socket there and the namespace's descriptor."""
        with open_namespace(self.path) as fd:
            self.host.enter(fd)
            with self.host.netlink() as netlink:
                yield netlink, fd
