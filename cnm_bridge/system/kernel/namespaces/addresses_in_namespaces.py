# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds out which addresses containers use, of whichever runtime: those of all namespaces but the host's."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cnm_bridge.core.link_state import KernelError, NamespaceMissing, attempt
from cnm_bridge.system.kernel.namespaces.links_in_namespaces import mounted_namespaces
from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, enter, namespace_id, open_namespace
from cnm_bridge.system.kernel.namespaces.process_namespaces import PROCESSES, process_namespaces
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import list_links
from cnm_bridge.system.kernel.netlink.socket import Netlink

__all__ = ["MarkedAddresses", "addresses_by_altname", "addresses_in_use"]


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
