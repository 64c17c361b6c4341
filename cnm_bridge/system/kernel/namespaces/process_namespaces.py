# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Network namespaces of running processes, including those that are no longer mounted."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.core.link_state import NamespaceMissing
from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, namespace_id, open_namespace

PROCESSES: Final = Path("/proc")


def process_namespaces(
    *, besides: frozenset[NamespaceId], strict: bool = False, processes: Path = PROCESSES
) -> Iterator[tuple[NamespaceId, int]]:
    """Open the namespaces of running processes one after another.

    Args:
        besides: Namespaces to skip.
        strict: Raise an error at the end if the kernel denied access to a process; otherwise such a process is ignored.
        processes: A directory like `/proc`.

    Yields:
        The identity of a namespace and its descriptor, which is closed before the next one is opened.

    Raises:
        PermissionError: `strict` is set and the kernel denied access to a process.
    """
    seen = set(besides)
    hidden: PermissionError | None = None
    for process in processes.iterdir():
        if not process.name.isdigit():
            continue
        path = process / "ns" / "net"
        try:
            found = os.stat(path)  # noqa: PTH116  # there are thousands
            if NamespaceId(device=found.st_dev, inode=found.st_ino) in seen:
                continue
            with open_namespace(path) as fd:
                identity = namespace_id(fd)
                if identity not in seen:
                    seen.add(identity)
                    yield identity, fd
        except (FileNotFoundError, ProcessLookupError, NamespaceMissing):  # the process has just ended
            continue
        except PermissionError as exc:
            hidden = exc
    if strict and hidden is not None:
        raise hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessNamespaces:
    """The namespaces of running processes, except the host namespace.

    Attributes:
        namespaces: Their identities.
        altnames: The alternative names of all links in them.
    """

    namespaces: frozenset[NamespaceId]
    altnames: frozenset[str]

    def includes(self, sandbox: Path) -> bool:
        """Return whether the namespace mounted at a path is one of them."""
        try:
            found = sandbox.stat()
        except FileNotFoundError:
            return False
        return NamespaceId(device=found.st_dev, inode=found.st_ino) in self.namespaces
