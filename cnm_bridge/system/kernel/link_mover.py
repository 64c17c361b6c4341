# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Moves a link out of its staging namespace for Docker, and back into it for CNI DEL.

Each call runs completely in one short-lived thread, which starts in the host namespace. No state is kept between calls:
the kernel knows where the link is. The link is identified by an alternative name, which it keeps when Docker moves or
renames it. A link that has neither that name nor, in the host namespace, our own name is never touched.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from errno import EEXIST
from pathlib import Path
from typing import Final

from cnm_bridge.core.link_state import (
    IpInterface,
    KernelError,
    LinkMissing,
    NamespaceMissing,
    NamespaceRefused,
    NameTaken,
    Snapshot,
    attempt,
)
from cnm_bridge.system.kernel.capture import capture
from cnm_bridge.system.kernel.namespaces.lost_sandboxes import lost_sandboxes
from cnm_bridge.system.kernel.namespaces.netns import (
    NamespaceId,
    current_namespace,
    ensure_namespace,
    enter,
    namespace_id,
    open_namespace,
)
from cnm_bridge.system.kernel.namespaces.sandboxes import PROCESSES
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
from cnm_bridge.system.kernel.sysctl import Baseline

_VETH: Final = "veth"


class LinkLocation(StrEnum):
    """The namespace in which the link of an endpoint was found."""

    HOST = "host"
    SANDBOX = "sandbox"
    STAGING = "staging"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMover:
    """Moves one link. `Kernel` describes the methods.

    Attributes:
        host: The host namespace.
        path: The path of the staging namespace.
        ifname: The name of the link in staging.
        altname: The alternative name of the link: a prefix, a hyphen, the attachment's ID.
        reply_limit_s: Time limit of one netlink reply, in seconds.
    """

    host: NamespaceId
    path: Path
    ifname: str
    altname: str
    reply_limit_s: float

    def out(self, host_name: str, baseline: Baseline) -> Snapshot:
        """Take the snapshot and move the link to the host namespace under the name `host_name`."""
        operation, subject = "move out", str(self)
        with attempt(operation, subject), self._in_host_netns() as host_fd, self._in_staging() as (staging, _):
            link = find_link(staging, self.ifname)
            if link is None:
                raise LinkMissing(operation, subject, tuple(other.state.name for other in list_links(staging)))
            snapshot = capture(staging, link, baseline, reply_limit_s=self.reply_limit_s)
            if self.altname not in link.altnames:
                add_altname(staging, link, self.altname)
            # The link is renamed before the move. In a combined request the kernel moves first, and the host's network
            # services would see a second eth0 appear.
            rename_link(staging, link, host_name)
            try:
                move_link(staging, link, host_fd)
            except OSError as exc:
                rename_link(staging, link, self.ifname)
                if exc.errno == EEXIST:
                    raise NameTaken(operation, subject, (host_name, self.altname)) from exc
                raise
        return snapshot

    def back(
        self, host_name: str, sandbox: Path | None, addresses: tuple[IpInterface, ...] | None, *, is_device: bool
    ) -> LinkLocation:
        """Bring the link, or a veth that replaces it, into staging and give it exactly `addresses`."""
        with attempt("bring back", str(self)), self._in_host_netns(), self._netlink() as host_netns:
            ensure_namespace(self.path, host=self.host)
            with self._in_staging() as (staging, staging_fd):
                where = self._retrieve(host_netns, host_name, sandbox, staging, staging_fd)
                link = get_link(staging, self.ifname)
                if addresses is not None:
                    if where is LinkLocation.STAGING:  # otherwise it has none: a move removes them
                        remove_addresses(staging, link)
                    add_addresses(staging, link, addresses)
                if self.altname in link.altnames and (is_device or link.state.kind is None):
                    remove_altname(staging, link, self.altname)  # a device of the host outlives the endpoint
                if is_device and link.state.kind == _VETH and not link.alias:  # a device has one since ADD
                    set_alias(staging, link, host_name)  # `host-device` gives the link this name
        return where

    def look(self) -> Snapshot:
        """Read the state and the addresses of the link in staging."""
        with attempt("look at", str(self)), self._in_staging() as (staging, _):
            link = get_link(staging, self.ifname)
            return Snapshot(link=link.state, addresses=find_addresses(staging, link), routes=())

    def __str__(self) -> str:
        return f"link {self.ifname} of {self.path}"

    def _retrieve(
        self, host_netns: Netlink, host_name: str, sandbox: Path | None, staging: Netlink, staging_fd: int
    ) -> LinkLocation:
        """Find the link and bring it into staging under its name; make a veth if it no longer exists."""
        host_link = find_link_by_altname(host_netns, self.altname) or self._find_unmarked(host_netns, host_name)
        if self._fetch(host_netns, host_link, staging, staging_fd):
            return LinkLocation.HOST
        link = find_link_by_altname(staging, self.altname)
        if link is not None:
            if link.state.name != self.ifname:  # `out` was interrupted
                rename_link(staging, link, self.ifname)
            return LinkLocation.STAGING
        if sandbox is not None and self._fetch_from(sandbox, staging, staging_fd):
            return LinkLocation.SANDBOX
        if find_link(staging, self.ifname) is not None:  # it never left, or this is the veth of an earlier call
            return LinkLocation.STAGING
        if sandbox is not None and self._fetch_from_lost(staging, staging_fd):
            return LinkLocation.SANDBOX
        make_veth(staging, self.ifname)
        return LinkLocation.GONE

    def _find_unmarked(self, host_netns: Netlink, host_name: str) -> Link | None:
        """Find the link in the host namespace by its name, because a container may have removed the alternative name.

        A link with the alternative name of another attachment belongs to that attachment.
        """
        link = find_link(host_netns, host_name)
        mark = self.altname.rpartition("-")[0]
        is_of_another = link is not None and any(name.rpartition("-")[0] == mark for name in link.altnames)
        return None if is_of_another else link

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
        try:
            with open_namespace(sandbox) as fd:
                is_own = namespace_id(fd) != self.host  # a container may be on the host's network
                return is_own and self._fetch_inside(fd, staging, staging_fd)
        except NamespaceMissing:
            return False

    def _fetch_inside(self, sandbox_fd: int, staging: Netlink, staging_fd: int) -> bool:
        try:
            enter(sandbox_fd, host=self.host)
            with self._netlink() as inside:
                return self._fetch(inside, find_link_by_altname(inside, self.altname), staging, staging_fd)
        finally:
            enter(staging_fd, host=self.host)

    def _fetch_from_lost(self, staging: Netlink, staging_fd: int) -> bool:
        """Move the link from a sandbox that Docker has unmounted although a process runs there; end in staging."""
        besides = frozenset({self.host, namespace_id(staging_fd)})
        for fd in lost_sandboxes(PROCESSES, besides=besides):
            with suppress(OSError, KernelError):  # what cannot be entered is of no container of Docker's
                if self._fetch_inside(fd, staging, staging_fd):
                    return True
        return False

    @contextmanager
    def _in_host_netns(self) -> Iterator[int]:
        """Open the host namespace, in which every thread starts."""
        with current_namespace() as fd:
            if namespace_id(fd) != self.host:
                raise NamespaceRefused("begin in", "namespace", "it is not the host's")
            yield fd

    @contextmanager
    def _in_staging(self) -> Iterator[tuple[Netlink, int]]:
        """Move the thread into staging; yield a netlink socket there and the namespace's descriptor."""
        with open_namespace(self.path) as fd:
            enter(fd, host=self.host)
            with self._netlink() as netlink:
                yield netlink, fd

    def _netlink(self) -> Netlink:
        return Netlink(reply_limit_s=self.reply_limit_s)
