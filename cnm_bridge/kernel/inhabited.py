# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Network namespaces in which processes live, also those that are mounted nowhere any more."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.kernel.errors import NamespaceMissing, attempt
from cnm_bridge.kernel.links import list_links
from cnm_bridge.kernel.netlink import Netlink
from cnm_bridge.kernel.netns import NamespaceId, enter, namespace_id, open_namespace

__all__ = ["Inhabited", "find_inhabited", "inhabited_namespaces"]

_PROCESSES: Final = Path("/proc")


def inhabited_namespaces(*, besides: frozenset[NamespaceId], strict: bool = False) -> Iterator[Path]:
    """Give one path to each namespace in which a process lives, but for those of `besides`.

    A path lasts as long as the process.

    Args:
        besides: What is not looked for.
        strict: Whether a process that the kernel does not let us look at is an error; otherwise it is left out.

    Raises:
        PermissionError: There is such a process.
    """
    seen = set(besides)
    for process in _PROCESSES.iterdir():
        if process.name.isdigit():
            path = process / "ns" / "net"
            try:
                found = path.stat()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            except PermissionError:
                if strict:
                    raise
                continue
            identity = NamespaceId(device=found.st_dev, inode=found.st_ino)
            if identity not in seen:
                seen.add(identity)
                yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class Inhabited:
    """The namespaces in which processes live, but for the host's.

    Attributes:
        namespaces: Which they are.
        altnames: The alternative names of all links in them.
    """

    namespaces: frozenset[NamespaceId]
    altnames: frozenset[str]

    def includes(self, sandbox: Path) -> bool:
        """Tell whether the namespace mounted at a path is one of them."""
        try:
            found = sandbox.stat()
        except FileNotFoundError:
            return False
        return NamespaceId(device=found.st_dev, inode=found.st_ino) in self.namespaces


def find_inhabited(*, host: NamespaceId, reply_limit_s: float) -> Inhabited:
    """Look into all namespaces in which processes live, but the host's; moves the calling thread there."""
    namespaces: set[NamespaceId] = set()
    altnames: set[str] = set()
    with attempt("look at", "processes"):
        for path in inhabited_namespaces(besides=frozenset({host}), strict=True):
            with suppress(NamespaceMissing, ProcessLookupError), open_namespace(path) as fd:  # it has just ended
                namespaces.add(namespace_id(fd))
                enter(fd, host=host)
                with Netlink(reply_limit_s=reply_limit_s) as netlink:
                    altnames.update(altname for link in list_links(netlink) for altname in link.altnames)
    return Inhabited(namespaces=frozenset(namespaces), altnames=frozenset(altnames))
