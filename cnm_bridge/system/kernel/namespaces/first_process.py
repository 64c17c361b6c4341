# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the first processes of the containers in a network namespace, and when they started.

There may be several: containers with `--network container:` share the sandbox of another one. Its start time
distinguishes a process from others that have had the same ID.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from cnm_bridge.system.kernel.namespaces.netns import NamespaceId, namespace_id, open_namespace

_RECENT: Final = 512
"""How many of the latest process IDs are tried first: the process of a starting container has just been made."""

_TGID: Final = re.compile(r"^Tgid:\s+(\d+)$", re.MULTILINE)
_IDS: Final = re.compile(r"^NStgid:\s+(.+)$", re.MULTILINE)
"""The process ID in each PID namespace, the innermost last."""
_PPID: Final = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)
_START: Final = 22 - 4
"""Index of the start time in the fields after process name and state; proc(5) counts from one."""


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


def find_latest_first_process(sandbox: Path, processes: Path) -> SandboxProcess | None:
    """Return the process in a sandbox that has PID 1 in its own PID namespace; None if there is none.

    When it ends, all processes of its container end. A container on the host's PID namespace has none. Of several it is
    the one that was made last, and usually only the latest process IDs are looked at.

    Raises:
        NamespaceMissing: There is no such sandbox.
        OSError: Processes cannot be read.
    """
    ids = (pid for some in (_latest_ids, _all_ids) for pid in some(processes))
    return next(_find_all(sandbox, ids, processes), None)


def find_first_processes(sandbox: Path, processes: Path) -> tuple[SandboxProcess, ...]:
    """Return all of these processes, the oldest first. Looks at each process of the host; arguments as above."""
    found = set(_find_all(sandbox, _all_ids(processes), processes))
    return tuple(sorted(found, key=lambda process: process.started))


def find_outermost(sandbox: Path, processes: Path) -> Iterator[SandboxProcess]:
    """Yield the processes in a sandbox whose parents are outside, the one that was made last first.

    One is the container's first process; with `docker exec` in a container on the host's PID namespace, for example,
    there are others. Usually only the latest process IDs are looked at. Arguments and errors as above.
    """
    with open_namespace(sandbox) as fd:
        wanted = namespace_id(fd)
    seen: set[int] = set()
    for pid in chain(_latest_ids(processes), _all_ids(processes)):
        found = _find_outermost(pid, wanted, processes)
        if found is not None and found.pid not in seen:
            seen.add(found.pid)
            described = _describe(found.pid, processes)
            if described is not None:
                yield described


def find_recent_cgroups(processes: Path) -> frozenset[str]:
    """Return the cgroups of the processes that were made last, one of which may be that of a starting container.

    Raises:
        OSError: Processes cannot be read.
    """
    cgroups: set[str] = set()
    for pid in _latest_ids(processes):
        with suppress(FileNotFoundError, ProcessLookupError):
            cgroups.add((processes / str(pid) / "cgroup").read_text("utf-8", errors="replace"))
    return frozenset(cgroups)


def is_inhabited(sandbox: Path, processes: Path) -> bool:
    """Return whether any process is in a sandbox. Looks at each process of the host; arguments as above.

    Raises:
        NamespaceMissing: There is no such sandbox.
        OSError: Processes cannot be read, or not the namespace of each.
    """
    with open_namespace(sandbox) as fd:
        wanted = namespace_id(fd)
    for pid in _all_ids(processes):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if _namespace_of(pid, processes) == wanted:
                return True
    return False


def _find_all(sandbox: Path, ids: Iterable[int], processes: Path) -> Iterator[SandboxProcess]:
    with open_namespace(sandbox) as fd:
        wanted = namespace_id(fd)
    for pid in ids:
        found = _find_outermost(pid, wanted, processes)
        described = _describe(found.pid, processes) if found is not None and found.is_first else None
        if described is not None:
            yield described


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
    """The oldest ancestor of a process in its network namespace.

    Attributes:
        pid: Its process ID.
        is_first: Whether it has PID 1 in its own PID namespace.
    """

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


def _describe(pid: int, processes: Path) -> SandboxProcess | None:
    started = find_start(pid, processes)
    if started is None:
        return None
    try:
        cgroup = (processes / str(pid) / "cgroup").read_text("utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return SandboxProcess(pid=pid, started=started, cgroup=cgroup)


def find_start(pid: int, processes: Path) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it does not exist or has ended.

    Raises:
        OSError: The process directory cannot be read.
    """
    try:
        with open(f"{processes}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - each call of Docker needs it
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *words = text.rpartition(b")")[2].split()
    return None if state in b"ZX" else int(words[_START])
