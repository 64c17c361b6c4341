# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds out which addresses containers use, of whichever runtime: those of all namespaces but the host's."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cnm_bridge.core.link_state import NamespaceMissing, attempt
from cnm_bridge.system.kernel.namespaces.links_in_namespaces import mounted_namespaces
from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, enter, namespace_id, open_namespace
from cnm_bridge.system.kernel.namespaces.process_namespaces import PROCESSES, process_namespaces
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import list_links
from cnm_bridge.system.kernel.netlink.socket import Netlink

__all__ = ["addresses_by_altname", "addresses_in_use"]


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
) -> Mapping[str, frozenset[str]]:
    """Return the addresses, without prefixes, of each link with an alternative name in a namespace with processes.

    The host namespace does not count. If not all processes are accessible, all mounted namespaces count, except those
    below `besides`. Moves the calling thread to another namespace.
    """
    found: dict[str, frozenset[str]] = {}
    with attempt("look at", str(processes)):
        try:
            for _, fd in process_namespaces(besides=frozenset({host}), strict=True, processes=processes):
                found |= _marked_inside(fd, host=host, reply_limit_s=reply_limit_s)
        except PermissionError:
            sees_processes = False
    if not sees_processes:
        for path in mounted_namespaces():
            if path.is_relative_to(besides):
                continue
            with suppress(NamespaceMissing), attempt("look into", str(path)), open_namespace(path) as fd:
                if namespace_id(fd) != host:
                    found |= _marked_inside(fd, host=host, reply_limit_s=reply_limit_s)
    return found


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
