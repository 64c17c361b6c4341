# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the first process of a container by its network namespace."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cnm_bridge.kernel.namespaces.netns import NamespaceId, namespace_id, open_namespace
from cnm_bridge.kernel.procfs.start_time import find_start

__all__ = ["SandboxProcess", "find_first_process"]

_RECENT: Final = 512
"""How many of the latest process IDs are tried first: the process of a starting container has just been made."""

_TGID: Final = re.compile(r"^Tgid:\s+(\d+)$", re.MULTILINE)
_IDS: Final = re.compile(r"^NStgid:\s+(.+)$", re.MULTILINE)
"""The process ID in each PID namespace, the innermost last."""
_PPID: Final = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxProcess:
    """A process in a sandbox.

    Attributes:
        pid: Its process ID.
        started: When it started, in clock ticks since boot.
        cgroup: The text of `/proc/<pid>/cgroup`, which contains the ID of the container.
    """

    pid: int
    started: int
    cgroup: str


def find_first_process(sandbox: Path, processes: Path) -> SandboxProcess | None:
    """Return the process in a sandbox that has PID 1 in its own PID namespace; None if there is none.

    When it ends, all processes of its container end. A container on the host's PID namespace has none.

    Args:
        sandbox: The path of the sandbox.
        processes: A directory like `/proc`.

    Raises:
        NamespaceMissing: There is no such sandbox.
        OSError: Processes cannot be read.
    """
    with open_namespace(sandbox) as fd:
        wanted = namespace_id(fd)
    for pid in _process_ids(processes):
        if _is_in(pid, wanted, processes):
            found = _find_container_init(pid, wanted, processes)
            if found is not None:
                return found
    return None


def _process_ids(processes: Path) -> Iterator[int]:
    """Yield the latest process IDs, whether they exist or not, then all that exist."""
    last = int((processes / "sys/kernel/ns_last_pid").read_text("ascii"))
    yield from range(last, max(0, last - _RECENT), -1)
    yield from sorted((int(name) for name in os.listdir(processes) if name.isdigit()), reverse=True)  # noqa: PTH208


def _is_in(pid: int, namespace: NamespaceId, processes: Path) -> bool:
    try:
        found = os.stat(f"{processes}/{pid}/ns/net")  # noqa: PTH116 - there are thousands
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return NamespaceId(device=found.st_dev, inode=found.st_ino) == namespace


def _find_container_init(pid: int, namespace: NamespaceId, processes: Path) -> SandboxProcess | None:
    """Return a process, or its oldest ancestor in a network namespace, if it has PID 1 in its own PID namespace.

    `/proc/<ID>` has threads, too: these are not listed, may end before their process, and lead to it.
    """
    while True:
        try:
            status = (processes / str(pid) / "status").read_text("utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        if _IDS.findall(status)[0].split()[-1] == "1":
            return _describe(int(_TGID.findall(status)[0]), processes)
        parent = int(_PPID.findall(status)[0])
        if not parent or not _is_in(parent, namespace, processes):
            return None
        pid = parent


def _describe(pid: int, processes: Path) -> SandboxProcess | None:
    started = find_start(pid, processes)
    if started is None:
        return None
    try:
        cgroup = (processes / str(pid) / "cgroup").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return SandboxProcess(pid=pid, started=started, cgroup=cgroup)
