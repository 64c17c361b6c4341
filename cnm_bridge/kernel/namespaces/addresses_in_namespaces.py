# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds out which addresses containers use, of whichever runtime: those of all namespaces but the host's."""

from contextlib import suppress

from cnm_bridge.kernel.errors import NamespaceMissing, attempt
from cnm_bridge.kernel.namespaces.links_in_namespaces import mounted_namespaces
from cnm_bridge.kernel.namespaces.netns import NamespaceId, enter, namespace_id, open_namespace
from cnm_bridge.kernel.namespaces.process_namespaces import PROCESSES, process_namespaces
from cnm_bridge.kernel.netlink.addresses import find_addresses
from cnm_bridge.kernel.netlink.links import list_links
from cnm_bridge.kernel.netlink.socket import Netlink

__all__ = ["addresses_in_use"]


def addresses_in_use(*, host: NamespaceId, reply_limit_s: float) -> frozenset[str]:
    """Return the addresses, without prefixes, of all namespaces that have processes or are mounted, but the host's.

    Moves the calling thread to another namespace.
    """
    found: set[str] = set()
    with attempt("look at", str(PROCESSES)):
        for _, fd in process_namespaces(besides=frozenset({host}), strict=True, processes=PROCESSES):
            found |= _addresses_inside(fd, host=host, reply_limit_s=reply_limit_s)
    for path in mounted_namespaces():
        with suppress(NamespaceMissing), attempt("look into", str(path)), open_namespace(path) as fd:
            if namespace_id(fd) != host:
                found |= _addresses_inside(fd, host=host, reply_limit_s=reply_limit_s)
    return frozenset(found)


def _addresses_inside(fd: int, *, host: NamespaceId, reply_limit_s: float) -> frozenset[str]:
    enter(fd, host=host)
    with Netlink(reply_limit_s=reply_limit_s) as netlink:
        found: set[str] = set()
        for link in list_links(netlink):
            found.update(str(address.address.ip) for address in find_addresses(netlink, link))
        return frozenset(found)
