# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds links and their addresses in the host namespace and in those of containers, and staging namespaces."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.core.link_state import IpInterface, IpNetwork, KernelError, NamespaceMissing, attempt
from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, enter, namespace_id, open_namespace
from cnm_bridge.system.kernel.namespaces.process_namespaces import PROCESSES, altnames_inside, process_namespaces
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
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

_MOUNTS: Final = Path("/proc/self/mountinfo")
_NAMESPACE: Final = re.compile(r"\S+ \S+ \S+ net:\[\d+\] (?P<path>\S+) .* - nsfs ")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def list_host_links(*, reply_limit_s: float) -> tuple[Link, ...]:
    """Return all links of the namespace that the calling thread is in."""
    with attempt("list", "links"), Netlink(reply_limit_s=reply_limit_s) as netlink:
        return list_links(netlink)


def list_host_addresses(*, reply_limit_s: float) -> tuple[tuple[IpInterface, str], ...]:
    """Return the addresses of the namespace that the calling thread is in, each with the name of its link."""
    with attempt("list", "addresses"), Netlink(reply_limit_s=reply_limit_s) as netlink:
        return tuple(
            (found.address, link.state.name) for link in list_links(netlink) for found in find_addresses(netlink, link)
        )


def list_host_destinations(*, reply_limit_s: float) -> tuple[tuple[IpNetwork, str, bool], ...]:
    """Return the routes of the main table of the namespace that the calling thread is in.

    Each is its destination, the name of its link, "" if it has none or several, and whether it has a next hop.
    """
    with attempt("list", "routes"), Netlink(reply_limit_s=reply_limit_s) as netlink:
        names = {link.index: link.state.name for link in list_links(netlink)}
        found = find_destinations(netlink)
        return tuple((destination, names.get(index or 0, ""), has_hop) for destination, index, has_hop in found)


def delete_host_link(link: Link, altname: str, *, reply_limit_s: float) -> None:
    """Delete a virtual link of the namespace that the calling thread is in, if it still exists under its name.

    A physical link is kept and loses `altname`, which marks it as ours.
    """
    with attempt("delete", f"link {link.state.name}"), Netlink(reply_limit_s=reply_limit_s) as netlink:
        found = find_link(netlink, link.state.name)
        if found is None or found.index != link.index:
            return
        if found.state.kind is not None:
            delete_link(netlink, found)
        elif altname in found.altnames:
            remove_altname(netlink, found, altname)


def find_without_link(sandboxes: Mapping[str, str], *, host: NamespaceId, reply_limit_s: float) -> frozenset[str]:
    """Return the alternative names of the links that are missing from their sandboxes; moves the calling thread.

    Args:
        sandboxes: Alternative name → path of the sandbox. A sandbox that does not exist is ignored.
        host: The host namespace. A sandbox that is the host namespace has none of our links.
        reply_limit_s: Time limit of one netlink reply, in seconds.
    """
    gone = gone_sandboxes(sandboxes.values())
    there = ((name, Path(path)) for name, path in sandboxes.items() if path not in gone)
    return frozenset(name for name, path in there if not _has_link(path, name, host, reply_limit_s))


def list_links_in(sandbox: Path, *, host: NamespaceId, reply_limit_s: float) -> tuple[Link, ...]:
    """Return all links of a sandbox, none if it does not exist or is the host namespace; moves the calling thread."""
    try:
        with attempt("look into", str(sandbox)), open_namespace(sandbox) as fd:
            if namespace_id(fd) == host:
                return ()
            enter(fd, host=host)
            with Netlink(reply_limit_s=reply_limit_s) as netlink:
                return list_links(netlink)
    except NamespaceMissing:
        return ()


def _has_link(sandbox: Path, altname: str, host: NamespaceId, reply_limit_s: float) -> bool:
    try:
        with attempt("look into", str(sandbox)), open_namespace(sandbox) as fd:
            if namespace_id(fd) == host:
                return False
            enter(fd, host=host)
            with Netlink(reply_limit_s=reply_limit_s) as netlink:
                return find_link_by_altname(netlink, altname) is not None
    except NamespaceMissing:
        return False


def altnames_in_use(
    staging: Path, *, host: NamespaceId, reply_limit_s: float, processes: Path = PROCESSES
) -> frozenset[str]:
    """Return the alternative names of all links in namespaces with processes, except the host namespace.

    A running container has processes, so its links are found wherever Docker has mounted its sandbox, even if that
    mount is not visible. If some processes are not accessible, all mounted namespaces count, except those below
    `staging`. Moves the calling thread to another namespace.
    """
    found: set[str] = set()
    with attempt("look at", str(processes)):
        try:
            for _, fd in process_namespaces(besides=frozenset({host}), strict=True, processes=processes):
                found |= altnames_inside(fd, host=host, reply_limit_s=reply_limit_s)
        except PermissionError:
            found |= altnames_mounted(staging, host=host, reply_limit_s=reply_limit_s)
    return frozenset(found)


def altnames_mounted(besides: Path, *, host: NamespaceId, reply_limit_s: float) -> frozenset[str]:
    """Return the alternative names of all links in mounted namespaces, except the host's and those below `besides`.

    Moves the calling thread to another namespace.
    """
    found: set[str] = set()
    for path in mounted_namespaces():
        if not path.is_relative_to(besides):
            with suppress(NamespaceMissing):  # unmounted meanwhile, or mounted over
                found |= _altnames_in(path, host=host, reply_limit_s=reply_limit_s)
    return frozenset(found)


def mounted_namespaces() -> tuple[Path, ...]:
    """Return the paths where network namespaces are mounted, by Docker or any other program."""
    with attempt("read", str(_MOUNTS)):
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    found = (match["path"] for line in lines if (match := _NAMESPACE.match(line)))
    return tuple(Path(_ESCAPED.sub(lambda digits: chr(int(digits[1], 8)), path)) for path in found)


def _altnames_in(path: Path, *, host: NamespaceId, reply_limit_s: float) -> frozenset[str]:
    with attempt("look into", str(path)), open_namespace(path) as fd:
        if namespace_id(fd) == host:
            return frozenset()
        return altnames_inside(fd, host=host, reply_limit_s=reply_limit_s)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedAddresses:
    """The addresses of links with an alternative name.

    Attributes:
        by_altname: The addresses, without prefixes, by alternative name.
        unread: For each namespace that could not be read, why.
    """

    by_altname: Mapping[str, frozenset[str]]
    unread: tuple[str, ...]


def addresses_in_use(*, host: NamespaceId, reply_limit_s: float, processes: Path = PROCESSES) -> frozenset[str]:
    """Return the addresses, without prefixes, of all namespaces that have processes or are mounted, but the host's.

    Moves the calling thread to another namespace.

    Raises:
        KernelError: One of them cannot be read, or the kernel denied access to a process.
    """
    found: set[str] = set()
    with attempt("look at", str(processes)):
        for _, fd in process_namespaces(besides=frozenset({host}), strict=True, processes=processes):
            found |= _addresses_inside(fd, host=host, reply_limit_s=reply_limit_s)
    for path in mounted_namespaces():
        with suppress(NamespaceMissing), attempt("look into", str(path)), open_namespace(path) as fd:
            if namespace_id(fd) != host:
                found |= _addresses_inside(fd, host=host, reply_limit_s=reply_limit_s)
    return frozenset(found)


def addresses_by_altname(
    besides: Path, *, host: NamespaceId, reply_limit_s: float, sees_processes: bool, processes: Path = PROCESSES
) -> MarkedAddresses:
    """Return the addresses of each link with an alternative name in a namespace with processes.

    The host namespace does not count. If not all processes are accessible, all mounted namespaces count, except those
    below `besides`. Moves the calling thread to another namespace.

    Raises:
        KernelError: It cannot be read which namespaces there are.
    """
    found: dict[str, frozenset[str]] = {}
    unread: list[str] = []

    def look(fd: int) -> None:
        try:
            with attempt("look into", f"net:[{namespace_id(fd).inode}]"):
                found.update(_marked_inside(fd, host=host, reply_limit_s=reply_limit_s))
        except KernelError as exc:
            unread.append(str(exc))

    with attempt("look at", str(processes)):
        try:
            for _, fd in process_namespaces(besides=frozenset({host}), strict=True, processes=processes):
                look(fd)
        except PermissionError:
            sees_processes = False
    for path in () if sees_processes else mounted_namespaces():
        if not path.is_relative_to(besides):
            try:
                with attempt("look into", str(path)), open_namespace(path) as fd:
                    if namespace_id(fd) != host:
                        look(fd)
            except NamespaceMissing:  # unmounted meanwhile, or mounted over
                continue
            except KernelError as exc:
                unread.append(str(exc))
    return MarkedAddresses(by_altname=found, unread=tuple(unread))


def _addresses_inside(fd: int, *, host: NamespaceId, reply_limit_s: float) -> frozenset[str]:
    enter(fd, host=host)
    with Netlink(reply_limit_s=reply_limit_s) as netlink:
        found: set[str] = set()
        for link in list_links(netlink):
            found.update(str(address.address.ip) for address in find_addresses(netlink, link))
        return frozenset(found)


def _marked_inside(fd: int, *, host: NamespaceId, reply_limit_s: float) -> Mapping[str, frozenset[str]]:
    enter(fd, host=host)
    with Netlink(reply_limit_s=reply_limit_s) as netlink:
        return {
            altname: frozenset(str(address.address.ip) for address in find_addresses(netlink, link))
            for link in list_links(netlink)
            for altname in link.altnames
        }
