# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Looks into Docker's sandboxes: whose links are there, and in which of them processes run.

Nothing else is looked into. A local user without any right may make a network namespace, and give its links any name,
alternative name and address.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import KernelError, NamespaceMissing, attempt
from cnm_bridge.system.kernel.container_files import read_mounts
from cnm_bridge.system.kernel.host import Host
from cnm_bridge.system.kernel.netlink.addresses import find_used
from cnm_bridge.system.kernel.netlink.links import list_links
from cnm_bridge.system.kernel.netns import NamespaceId, namespace_id, open_namespace
from cnm_bridge.system.kernel.processes import find_inhabited, open_of_root

_NAMESPACE: Final = re.compile(r"net:\[\d+\]")
"""What a mount of a network namespace shows: the root of any other one begins with a slash."""
_SANDBOX: Final = re.compile(r"[0-9a-f]{12}|lb_\w{1,9}")
"""The names of Docker's sandboxes, `<exec-root>/netns/<name>` (moby `libnetwork/osl`, GenerateKey): part of the
container's ID, or of the network's if it is that of a swarm's load balancer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandboxes:
    """What a look has found.

    Attributes:
        links: Alternative name of a link → the sandboxes with such a link.
        addresses: The addresses of all links, without prefixes.
        ids: The namespace at each of the paths that were looked at.
        unread: Why a sandbox could not be read. It says nothing about the others.
        lost: The alternative names of the links in sandboxes that Docker has unmounted although processes run there.
        inhabited: The namespaces in which processes run; None if not all processes are visible.
    """

    links: Mapping[str, frozenset[NamespaceId]]
    addresses: frozenset[str]
    ids: Mapping[str, NamespaceId]
    unread: Mapping[NamespaceId, str]
    lost: frozenset[str]
    inhabited: frozenset[NamespaceId] | None

    def has_in_use(self, altname: str, sandboxes: Collection[str] = ()) -> bool:
        """Return whether a link is in a sandbox in which a process runs, or whether that may be.

        `sandboxes` are the paths of its sandbox; none stand for any. If that is no longer mounted, it may be lost.
        """
        found = self.links.get(altname, frozenset())
        if sandboxes:
            own = {self.ids[path] for path in sandboxes if path in self.ids}
            if not own:
                return altname in self.lost
            found = frozenset(own & (found | self.unread.keys()))
        return any(map(self._may_be_inhabited, found))

    def has(self, altname: str, sandbox: str) -> bool:
        """Return whether a link is, or may be, in the sandbox at a path, whether processes run there or not."""
        own = self.ids.get(sandbox)
        return own in self.unread or own in self.links.get(altname, ())

    def is_inhabited(self, sandbox: str) -> bool:
        """Return whether a process runs, or may run, in the sandbox at a path."""
        own = self.ids.get(sandbox)
        return own is not None and self._may_be_inhabited(own)

    def _may_be_inhabited(self, sandbox: NamespaceId) -> bool:
        return self.inhabited is None or sandbox in self.inhabited


def look_into_sandboxes(host: Host, known: Collection[str]) -> Sandboxes:
    """Return what is in Docker's sandboxes now, and in those at further paths; moves the calling thread.

    Raise `KernelError` if mounts or processes cannot be read, or a sandbox cannot be opened.
    """
    links: dict[str, frozenset[NamespaceId]] = {}
    addresses: set[str] = set()
    ids: dict[str, NamespaceId] = {}
    unread: dict[NamespaceId, str] = {}
    seen: set[NamespaceId] = {host.id}
    dockers = (path for path in mounted_namespaces() if path.parent.name == "netns" and _SANDBOX.fullmatch(path.name))
    for path in dict.fromkeys((*known, *map(str, dockers))):
        with suppress(NamespaceMissing), attempt("look into", path), open_namespace(Path(path)) as fd:
            sandbox = namespace_id(fd)
            if sandbox == host.id:
                continue
            ids[path] = sandbox
            if sandbox in seen:  # mounted at several paths
                continue
            seen.add(sandbox)
            try:
                with attempt("look into", path):
                    altnames, used = _read(host, fd)
            except KernelError as exc:
                unread[sandbox] = str(exc)
                continue
            addresses |= used
            for altname in altnames:
                links[altname] = links.get(altname, frozenset()) | {sandbox}
    with attempt("look at", "processes"):  # last: a container's process is there before its link
        inhabited = find_inhabited(host.processes)
    return Sandboxes(
        links=links,
        addresses=frozenset(addresses),
        ids=ids,
        unread=unread,
        lost=_find_lost(host, seen) if any(path not in ids for path in known) else frozenset(),
        inhabited=inhabited,
    )


def lost_sandboxes(host: Host, *, besides: Iterable[NamespaceId]) -> Iterator[int]:
    """Open the sandboxes that Docker has unmounted although a process still runs in them, and move the thread there.

    A dockerd that was killed may lose a container whose process runs on, or waits forever to be started (`runc init`).
    The next dockerd unmounts its sandbox. Only the process leads to it, and to the link, whose address must not be
    given to another container. What cannot be entered is of no container of Docker's, and is skipped.
    """
    for fd in open_of_root(host.processes, besides={host.id, *besides}):
        with suppress(OSError, KernelError):
            host.enter(fd)
            yield fd


def mounted_namespaces() -> tuple[Path, ...]:
    """Return the paths where network namespaces are mounted, by Docker or any other program."""
    with attempt("read", "the mounts"):
        return tuple(Path(mount.point) for mount in read_mounts() if _NAMESPACE.fullmatch(mount.root))


def gone_sandboxes(paths: Iterable[str]) -> frozenset[str]:
    """Return the sandboxes that Docker has removed, as far as that is visible.

    Docker creates a file for each sandbox and mounts the namespace on it. If the directory is not visible, as in a
    container that does not share it, none is returned. If only the mount is not visible, the file still is.
    """
    by_directory: dict[str, set[str]] = {}
    for path in paths:
        by_directory.setdefault(os.path.dirname(path), set()).add(path)  # noqa: PTH120 - there are thousands
    return frozenset(path for directory, there in by_directory.items() for path in _gone_from(directory, there))


def _gone_from(directory: str, paths: set[str]) -> Iterator[str]:
    """Yield the paths that no longer exist in their directory; none if the directory cannot be listed."""
    try:
        present = frozenset(os.listdir(directory))  # noqa: PTH208 - one listing for all paths
    except OSError:
        return
    yield from (path for path in paths if os.path.basename(path) not in present)  # noqa: PTH119


def _read(host: Host, fd: int) -> tuple[frozenset[str], frozenset[str]]:
    """Return the alternative names of the links in an open namespace, and the addresses of all its links."""
    host.enter(fd)
    with host.netlink() as netlink:
        return frozenset(altname for link in list_links(netlink) for altname in link.altnames), find_used(netlink)


def _find_lost(host: Host, besides: Iterable[NamespaceId]) -> frozenset[str]:
    """Return the alternative names of all links in lost sandboxes."""
    altnames: set[str] = set()
    for _ in lost_sandboxes(host, besides=besides):
        with suppress(OSError), host.netlink() as netlink:
            altnames.update(altname for link in list_links(netlink) for altname in link.altnames)
    return frozenset(altnames)
