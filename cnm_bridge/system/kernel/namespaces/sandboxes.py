# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What one look into Docker's sandboxes has found: whose links are there, and in which of them processes run.

Nothing else is looked into. A local user without any right may make a network namespace, and give its links any name,
alternative name and address.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.system.kernel.namespaces.netns import NamespaceId

PROCESSES: Final = Path("/proc")

_SANDBOX: Final = re.compile(r"[0-9a-f]{12}|lb_\w{1,9}")
"""The names of Docker's sandboxes (moby `libnetwork/osl`, GenerateKey): part of the container's ID, or of the network's
if it is that of a swarm's load balancer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedLink:
    """A link in a sandbox that has an alternative name.

    Attributes:
        altname: The alternative name.
        addresses: Its addresses, without prefixes.
        sandbox: The namespace that it is in.
    """

    altname: str
    addresses: frozenset[str]
    sandbox: NamespaceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandboxes:
    """What a look has found.

    Attributes:
        links: The links that have an alternative name, by that.
        addresses: The addresses of all links, without prefixes.
        ids: The namespace at each of the paths that were looked at.
        unread: Why a sandbox could not be read. It says nothing about the others.
        lost: The alternative names of the links in sandboxes that Docker has unmounted although processes run there.
        inhabited: The namespaces in which processes run; None if not all processes are visible.
    """

    links: Mapping[str, Sequence[MarkedLink]]
    addresses: frozenset[str]
    ids: Mapping[str, NamespaceId]
    unread: Mapping[NamespaceId, str]
    lost: frozenset[str]
    inhabited: frozenset[NamespaceId] | None

    @property
    def in_use(self) -> Iterator[MarkedLink]:
        """The links in sandboxes in which a process runs, or may run."""
        return (link for links in self.links.values() for link in links if self._may_be_inhabited(link.sandbox))

    def has_in_use(self, altname: str, sandboxes: Collection[str] = ()) -> bool:
        """Return whether a link is in a sandbox in which a process runs, or whether that may be.

        Args:
            altname: The link's alternative name.
            sandboxes: The paths of its sandbox; none stand for any. If that is no longer mounted, it may be lost.
        """
        found = {link.sandbox for link in self.links.get(altname, ())}
        if sandboxes:
            own = {self.ids[path] for path in sandboxes if path in self.ids}
            if not own:
                return altname in self.lost
            found = own & (found | self.unread.keys())
        return any(map(self._may_be_inhabited, found))

    def has(self, altname: str, sandbox: str) -> bool:
        """Return whether a link is, or may be, in the sandbox at a path, whether processes run there or not."""
        own = self.ids.get(sandbox)
        return own in self.unread or any(link.sandbox == own for link in self.links.get(altname, ()))

    def is_inhabited(self, sandbox: str) -> bool:
        """Return whether a process runs, or may run, in the sandbox at a path."""
        own = self.ids.get(sandbox)
        return own is not None and self._may_be_inhabited(own)

    def _may_be_inhabited(self, sandbox: NamespaceId) -> bool:
        return self.inhabited is None or sandbox in self.inhabited


def docker_sandboxes(mounted: Iterable[Path]) -> tuple[Path, ...]:
    """Return which of these mounted namespaces are Docker's sandboxes: `<exec-root>/netns/<part of an ID>`."""
    return tuple(path for path in mounted if path.parent.name == "netns" and _SANDBOX.fullmatch(path.name))


def find_inhabited(processes: Path = PROCESSES) -> frozenset[NamespaceId] | None:
    """Return the namespaces in which processes run; None if the kernel does not show that of each process.

    No namespace is entered.

    Raises:
        OSError: The directory cannot be listed.
    """
    found: set[NamespaceId] = set()
    for name in filter(str.isdigit, os.listdir(processes)):  # noqa: PTH208
        try:
            status = os.stat(f"{processes}/{name}/ns/net")  # noqa: PTH116 - there are thousands
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except PermissionError:
            return None
        found.add(NamespaceId(device=status.st_dev, inode=status.st_ino))
    return frozenset(found)
