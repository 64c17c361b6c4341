# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads links and their addresses in the host namespace and in those of containers."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import ENODEV
from pathlib import Path
from typing import Final

from cnm_bridge.core.link_state import (
    Address,
    IpInterface,
    IpNetwork,
    KernelError,
    NamespaceMissing,
    attempt,
    find_dynamic,
)
from cnm_bridge.system.kernel.mounts import read_mounts
from cnm_bridge.system.kernel.namespaces.lost_sandboxes import lost_sandboxes
from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, enter, namespace_id, open_namespace
from cnm_bridge.system.kernel.namespaces.sandboxes import MarkedLink, Sandboxes, docker_sandboxes, find_inhabited
from cnm_bridge.system.kernel.netlink.addresses import end_detection, find_addresses, find_used
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
from cnm_bridge.system.kernel.sysctl import is_ipv6_disabled

_NAMESPACE: Final = re.compile(r"net:\[\d+\]")
"""What a mount of a network namespace shows: the root of any other one begins with a slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceReader:
    """Reads namespaces. `Kernel` and `KernelView` describe the methods; each needs a thread of its own, which it moves.

    Attributes:
        host: The host namespace, in which the thread starts.
        reply_limit_s: Time limit of one netlink reply, in seconds.
        processes: A directory like `/proc`.
    """

    host: NamespaceId
    reply_limit_s: float
    processes: Path

    def host_links(self) -> tuple[Link, ...]:
        """Return all links of the host namespace."""
        with attempt("list", "links"), self._netlink() as netlink:
            return list_links(netlink)

    def host_addresses(self) -> tuple[tuple[IpInterface, str], ...]:
        """Return the addresses of the host namespace, each with the name of its link."""
        with attempt("list", "addresses"), self._netlink() as netlink:
            return tuple(
                (found.address, link.state.name)
                for link in list_links(netlink)
                for found in _addresses_of(netlink, link)
            )

    def host_destinations(self) -> tuple[tuple[IpNetwork, str, bool], ...]:
        """Return the routes of the host namespace's main table; "" stands for no link, or several."""
        with attempt("list", "routes"), self._netlink() as netlink:
            names = {link.index: link.state.name for link in list_links(netlink)}
            found = find_destinations(netlink)
            return tuple((destination, names.get(index or 0, ""), has_hop) for destination, index, has_hop in found)

    def delete_host_link(self, link: Link, altname: str) -> None:
        """Delete a virtual link of the host namespace, if it still exists under its name; unmark a physical one."""
        with attempt("delete", f"link {link.state.name}"), self._netlink() as netlink:
            found = find_link(netlink, link.state.name)
            if found is None or found.index != link.index:
                return
            if found.state.kind is not None:
                delete_link(netlink, found)
            elif altname in found.altnames:
                remove_altname(netlink, found, altname)

    def end_detection(self, names: Iterable[str]) -> None:
        """End duplicate address detection of links of the host namespace, by their names."""
        with attempt("end", "duplicate address detection"), self._netlink() as netlink:
            for link in filter(None, (find_link(netlink, name) for name in names)):
                end_detection(netlink, link)

    def links_in(self, sandbox: Path) -> tuple[Link, ...]:
        """Return all links of a sandbox, none if it does not exist or is the host namespace."""
        with suppress(NamespaceMissing), self._opened(sandbox) as fd:
            return () if fd is None else self._links(fd)
        return ()

    def is_ipv6_disabled(self, sandbox: Path) -> bool:
        """Return whether IPv6 is disabled on all links of a sandbox; not if it is missing or the host namespace."""
        with suppress(NamespaceMissing), self._opened(sandbox) as fd, attempt("look into", str(sandbox)):
            if fd is not None:
                enter(fd, host=self.host)
                return is_ipv6_disabled()
        return False

    def find_without_link(self, sandboxes: Mapping[str, str]) -> frozenset[str]:
        """Return the alternative names of the links that are missing from their sandboxes."""
        gone = gone_sandboxes(sandboxes.values())
        there = {name: Path(path) for name, path in sandboxes.items() if path not in gone}
        return frozenset(name for name, path in there.items() if name not in _altnames(self.links_in(path)))

    def dynamic_addresses(self, sandboxes: Mapping[str, str]) -> Mapping[str, tuple[IpInterface, ...]]:
        """Return the dynamic addresses of links, by alternative name; none of a link that is not in its sandbox."""
        found: dict[str, tuple[IpInterface, ...]] = {}
        for altname, path in sandboxes.items():
            with suppress(KernelError), self._opened(Path(path)) as fd, attempt("look into", path):
                if fd is not None:
                    enter(fd, host=self.host)
                    with self._netlink() as netlink:
                        link = find_link_by_altname(netlink, altname)
                        if link is not None and (dynamic := find_dynamic(_addresses_of(netlink, link))):
                            found[altname] = dynamic
        return found

    def look_into_sandboxes(self, known: Collection[str]) -> Sandboxes:
        """Return what is in Docker's sandboxes, those at known paths included."""
        links: dict[str, list[MarkedLink]] = {}
        addresses: set[str] = set()
        ids: dict[str, NamespaceId] = {}
        unread: dict[NamespaceId, str] = {}
        seen: set[NamespaceId] = set()
        paths = dict.fromkeys((*known, *map(str, docker_sandboxes(mounted_namespaces()))))
        for path in paths:
            with suppress(NamespaceMissing), self._opened(Path(path)) as fd:
                if fd is None:
                    continue
                ids[path] = sandbox = namespace_id(fd)
                if sandbox in seen:  # mounted at several paths
                    continue
                seen.add(sandbox)
                try:
                    with attempt("look into", path):
                        marked, used = self._marked(fd)
                except KernelError as exc:
                    unread[sandbox] = str(exc)
                    continue
                addresses |= used
                for link in marked:
                    links.setdefault(link.altname, []).append(link)
        with attempt("look at", "processes"):  # last: a container's process is there before its link
            inhabited = find_inhabited(self.processes)
        return Sandboxes(
            links=links,
            addresses=frozenset(addresses),
            ids=ids,
            unread=unread,
            lost=self._lost_altnames(seen) if any(path not in ids for path in known) else frozenset(),
            inhabited=inhabited,
        )

    def _netlink(self) -> Netlink:
        return Netlink(reply_limit_s=self.reply_limit_s)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int | None]:
        """Open a mounted namespace, and yield its descriptor; None if it is the host namespace."""
        with attempt("look into", str(path)), open_namespace(path) as fd:
            yield None if namespace_id(fd) == self.host else fd

    def _links(self, fd: int) -> tuple[Link, ...]:
        enter(fd, host=self.host)
        with self._netlink() as netlink:
            return list_links(netlink)

    def _lost_altnames(self, besides: Iterable[NamespaceId]) -> frozenset[str]:
        """Return the alternative names of all links in lost sandboxes; what cannot be read is skipped."""
        found: set[str] = set()
        for fd in lost_sandboxes(self.processes, besides=frozenset((self.host, *besides))):
            with suppress(OSError, KernelError):
                found |= _altnames(self._links(fd))
        return frozenset(found)

    def _marked(self, fd: int) -> tuple[tuple[MarkedLink, ...], frozenset[str]]:
        """Return the links of an open namespace that have alternative names, and the addresses of all its links."""
        enter(fd, host=self.host)
        sandbox = namespace_id(fd)
        with self._netlink() as netlink:
            links, used = list_links(netlink), find_used(netlink)
        marked = tuple(
            MarkedLink(altname=altname, addresses=used.get(link.index, frozenset()), sandbox=sandbox)
            for link in links
            for altname in link.altnames
        )
        return marked, frozenset[str]().union(*used.values())


def _addresses_of(netlink: Netlink, link: Link) -> tuple[Address, ...]:
    """Return the addresses of a link, none if it is gone since it was listed."""
    try:
        return find_addresses(netlink, link)
    except OSError as exc:
        if exc.errno != ENODEV:
            raise
        return ()


def _altnames(links: Iterable[Link]) -> frozenset[str]:
    return frozenset(altname for link in links for altname in link.altnames)


def mounted_namespaces() -> tuple[Path, ...]:
    """Return the paths where network namespaces are mounted, by Docker or any other program."""
    with attempt("read", "the mounts"):
        return tuple(Path(mount.point) for mount in read_mounts() if _NAMESPACE.fullmatch(mount.root))


def list_namespaces(directory: Path) -> tuple[Path, ...]:
    """Return the content of a directory of namespaces; empty if it does not exist."""
    with attempt("list", str(directory)):
        return tuple(sorted(directory.iterdir())) if directory.is_dir() else ()


def gone_sandboxes(paths: Iterable[str]) -> frozenset[str]:
    """Return the sandboxes that Docker has removed, as far as that is visible.

    Docker creates a file for each sandbox and mounts the namespace on it. If the directory is not visible, as in a
    container that does not share it, none is returned. If only the mount is not visible, the file still is.
    """
    by_directory: dict[str, set[str]] = {}
    for path in paths:
        by_directory.setdefault(os.path.dirname(path), set()).add(path)  # noqa: PTH120 - there are thousands
    return frozenset(path for directory, wanted in by_directory.items() for path in _gone_from(directory, wanted))


def _gone_from(directory: str, wanted: set[str]) -> Iterator[str]:
    """Yield the paths that no longer exist in their directory; none if the directory cannot be listed."""
    try:
        present = frozenset(os.listdir(directory))  # noqa: PTH208 - one listing for all paths
    except OSError:
        return
    yield from (path for path in wanted if os.path.basename(path) not in present)  # noqa: PTH119
