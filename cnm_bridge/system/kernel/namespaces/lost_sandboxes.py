# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds sandboxes that Docker has unmounted although a process still runs in them.

A dockerd that was killed may lose a container whose process runs on, or waits forever to be started (`runc init`). The
next dockerd unmounts its sandbox. Only the process leads to it, and to the link, whose address must not be given to
another container.

Only namespaces that root has made are opened. A local user without any right can make a network namespace in a user
namespace only, which then owns it.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cnm_bridge.core.link_state import NamespaceMissing
from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, namespace_id, open_namespace

_OWN_USERS: Final = Path("/proc/self/ns/user")
_NS_GET_USERNS: Final = 0xB701  # ioctl_nsfs(2)


def lost_sandboxes(processes: Path, *, besides: frozenset[NamespaceId]) -> Iterator[int]:
    """Open the namespaces of processes that root has made, one after another.

    Args:
        processes: A directory like `/proc`.
        besides: Namespaces to skip: the host's, and those that are mounted.

    Yields:
        A descriptor, which is closed before the next one is opened. What cannot be opened is skipped.
    """
    seen = set(besides)
    for name in filter(str.isdigit, os.listdir(processes)):  # noqa: PTH208
        path = processes / name / "ns" / "net"
        try:
            found = os.stat(path)  # noqa: PTH116 - there are thousands
            if NamespaceId(device=found.st_dev, inode=found.st_ino) in seen:
                continue
            with open_namespace(path) as fd:
                seen.add(namespace_id(fd))
                if _is_of_root(fd):
                    yield fd
        except (FileNotFoundError, ProcessLookupError, PermissionError, NamespaceMissing):  # it has ended, or is hidden
            continue


def _is_of_root(fd: int) -> bool:
    """Return whether the user namespace that owns an open namespace is that of this process."""
    try:
        owner = fcntl.ioctl(fd, _NS_GET_USERNS)
    except PermissionError:  # it is outside of ours
        return False
    try:
        return os.path.samestat(os.fstat(owner), _OWN_USERS.stat())
    finally:
        os.close(owner)
