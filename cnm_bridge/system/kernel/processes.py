# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds processes by their network namespace: the first ones of its containers, and whether there are any.

There may be several containers: those with `--network container:` share the sandbox of another one. Its start time
distinguishes a process from others that have had the same ID.
"""

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from cnm_bridge.core.errors import NamespaceMissing
from cnm_bridge.system.kernel.netns import NamespaceId, namespace_id, open_namespace

_RECENT: Final = 512
"""How many of the latest process IDs are tried first: the process of a starting container has just been made."""

_TGID: Final = re.compile(r"^Tgid:\s+(\d+)$", re.MULTILINE)
_IDS: Final = re.compile(r"^NStgid:\s+(.+)$", re.MULTILINE)
"""The process ID in each PID namespace, the innermost last."""
_PPID: Final = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)
_START: Final = 22 - 4
"""Index of the start time in the fields after process name and state; proc(5) counts from one."""

_OWN_USERS: Final = Path("/proc/self/ns/user")
_NS_GET_USERNS: Final = 0xB701  # ioctl_nsfs(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxProcess:
    """A process in a sandbox.

    Attributes:
        started: When it started, in clock ticks since boot.
        cgroup: The text of `/proc/<pid>/cgroup`, which contains the ID of the container.
        is_first: Whether it has PID 1 in its own PID namespace.
    """

    pid: int
    started: int
    cgroup: str
    is_first: bool = True


def find_outermost(sandbox: Path, processes: Path) -> Iterator[SandboxProcess]:
    """Yield the processes in a sandbox whose parents are outside, the one that was made last first.

    One is the container's first process; with `docker exec` in a container on the host's PID namespace, for example,
    there are others. A caller that needs one usually has the latest process IDs looked at only. Raise
    `NamespaceMissing` if there is no such sandbox.
    """
    with open_namespace(sandbox) as fd:
        namespace = namespace_id(fd)
    seen: set[int] = set()
    for pid in chain(_latest_ids(processes), _all_ids(processes)):
        outermost = _find_outermost(pid, namespace, processes)
        if outermost is not None and outermost.pid not in seen:
            seen.add(outermost.pid)
            described = _describe(outermost, processes)
            if described is not None:
                yield described


def find_recent_cgroups(processes: Path) -> frozenset[str]:
    """Return the cgroups of the processes that were made last, one of which may be that of a starting container."""
    cgroups: set[str] = set()
    for pid in _latest_ids(processes):
        with suppress(FileNotFoundError, ProcessLookupError):
            cgroups.add((processes / str(pid) / "cgroup").read_text("utf-8", errors="replace"))
    return frozenset(cgroups)


def find_inhabited(processes: Path) -> frozenset[NamespaceId] | None:
    """Return the network namespaces in which processes run; None if the kernel does not show that of each process.

    Looks at each process of the host. No namespace is entered.
    """
    found: set[NamespaceId] = set()
    for pid in _all_ids(processes):
        try:
            found.add(_namespace_of(pid, processes))
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except PermissionError:
            return None
    return frozenset(found)


def open_of_root(processes: Path, *, besides: Iterable[NamespaceId]) -> Iterator[int]:
    """Open the network namespaces of processes that root has made, and yield their descriptors, one after another.

    A local user without any right can make a network namespace in a user namespace only, which then owns it. What
    cannot be opened is skipped.
    """
    seen = set(besides)
    for pid in _all_ids(processes):
        try:
            if _namespace_of(pid, processes) in seen:
                continue
            with open_namespace(processes / str(pid) / "ns" / "net") as fd:
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


def _latest_ids(processes: Path) -> Iterator[int]:
    """Yield the latest process IDs, whether they exist or not; none if the kernel does not tell the last one."""
    with suppress(FileNotFoundError):  # without CONFIG_CHECKPOINT_RESTORE
        last = int((processes / "sys/kernel/ns_last_pid").read_text("ascii"))
        yield from range(last, max(0, last - _RECENT), -1)


def _all_ids(processes: Path) -> Iterator[int]:
    yield from sorted((int(name) for name in os.listdir(processes) if name.isdigit()), reverse=True)  # noqa: PTH208


def _is_in(pid: int, namespace: NamespaceId, processes: Path) -> bool:
    try:
        return _namespace_of(pid, processes) == namespace
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def _namespace_of(pid: int, processes: Path) -> NamespaceId:
    found = os.stat(f"{processes}/{pid}/ns/net")  # noqa: PTH116 - there are thousands
    return NamespaceId(device=found.st_dev, inode=found.st_ino)


class _Outermost(NamedTuple):
    """The oldest ancestor of a process in its network namespace; the first one of a PID namespace has PID 1 there."""

    pid: int
    is_first: bool


def _find_outermost(pid: int, namespace: NamespaceId, processes: Path) -> _Outermost | None:
    """Return the oldest ancestor of a process in a network namespace; None if the process is not in it.

    Its parent is outside: the container runtime. A process in a container may make further PID namespaces, with or
    without containers; their first processes have ancestors in the sandbox.

    `/proc/<ID>` has threads, too: these are not listed, may end before their process, and lead to it.
    """
    oldest = None
    while pid and _is_in(pid, namespace, processes):
        try:
            status = (processes / str(pid) / "status").read_text("utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        oldest = _Outermost(int(_TGID.findall(status)[0]), _IDS.findall(status)[0].split()[-1] == "1")
        pid = int(_PPID.findall(status)[0])
    return oldest


def _describe(process: _Outermost, processes: Path) -> SandboxProcess | None:
    started = find_start(process.pid, processes)
    if started is None:
        return None
    try:
        cgroup = (processes / str(process.pid) / "cgroup").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return SandboxProcess(pid=process.pid, started=started, cgroup=cgroup, is_first=process.is_first)


def find_start(pid: int, processes: Path) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it does not exist or has ended."""
    try:
        with open(f"{processes}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - each call of Docker needs it
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *words = text.rpartition(b")")[2].split()
    return None if state in b"ZX" else int(words[_START])
