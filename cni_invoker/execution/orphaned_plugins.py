# SPDX-License-Identifier: Apache-2.0
"""Kills plugins that outlived their runtime.

When a runtime is killed, the plugins that it was waiting for keep running: they would continue an ADD while it is being
undone, or afterwards. The directory `running` identifies them. Each plugin leads its own session, which contains
whatever it runs, such as its IPAM plugin or iptables, even after the plugin itself was killed. All processes of such a
session are killed, and nothing else. A daemon that a plugin started on purpose has its own session, or is in the
session of a plugin that has ended normally and is no longer recorded.

The files of an earlier boot are removed, and nothing is killed for them.

A session without its leader is identified by the container's ID in the environment of one of its processes, that of a
GC by its command; otherwise its number might have been reused. The same applies to a plugin whose process ID was not
recorded because the runtime was killed at that moment.
"""

import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_invoker.execution.process_table import (
    Process,
    command_of,
    environment_of,
    find_process,
    own_sessions,
    processes,
)
from cni_invoker.execution.running_files import ALL_CONTAINERS, Execution, find_abandoned

_PAUSE_S: Final = 0.01
"""Between two attempts, should the kernel refuse to send a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedPlugin:
    """A plugin that outlived its runtime, or a process in its session.

    Attributes:
        pid: The process ID.
        container_id: The container that the plugin works for, `*` for GC.
        command: Its command line.
    """

    pid: int
    container_id: str
    command: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


def kill_orphaned_plugins(directory: Path, container_ids: Collection[str] | None, *, limit_s: float) -> tuple[int, ...]:
    """Kill the orphaned plugins of some containers, with all processes in their sessions.

    Call it before any other operation on these containers. An orphaned GC is killed whatever the containers. Plugins
    whose runtime is alive are left alone. So are this process, which may be a plugin itself, and its ancestors.

    Args:
        directory: Where the runtime recorded its running plugins.
        container_ids: The containers, None for all.
        limit_s: How long to wait for the end of all processes together, in seconds. Each is signalled in any case.

    Returns:
        The process IDs of all killed processes. `find_orphaned_plugins` shows whether any of them still exists because
        it hangs in the kernel.

    Raises:
        OSError: The directory cannot be read.
    """
    deadline = time.monotonic() + limit_s
    executions = find_abandoned(directory, container_ids)
    sessions = _find_sessions(executions)
    killed: dict[Process, None] = {}
    # Leaders first, so that they start no more processes. Repeat for processes that were started meanwhile.
    running = tuple(leader for leader in _members(sessions) if leader.pid == leader.session) or _members(sessions)
    attempted: set[Process] = set()
    while running and (time.monotonic() < deadline or not attempted >= set(running)):
        attempted.update(running)
        killed.update(dict.fromkeys(_kill_all(running, deadline)))
        running = _members(sessions)
        if running:
            time.sleep(_PAUSE_S)
    if not running:
        for execution in executions:
            with suppress(OSError):
                execution.file.unlink()
    return tuple(process.pid for process in killed)


def find_orphaned_plugins(directory: Path, container_ids: Collection[str] | None) -> tuple[OrphanedPlugin, ...]:
    """Return what `kill_orphaned_plugins` would kill.

    Raises:
        OSError: The directory cannot be read.
    """
    sessions = _find_sessions(find_abandoned(directory, container_ids))
    return tuple(
        OrphanedPlugin(
            pid=process.pid, container_id=sessions[process.session].container_id, command=command_of(process.pid)
        )
        for process in _members(sessions)
    )


def _find_sessions(executions: Collection[Execution]) -> Mapping[int, Execution]:
    """Return the sessions of plugins that still contain a process."""
    existing = tuple(processes()) if executions else ()
    spared = set(own_sessions()) if executions else set()
    sessions: dict[int, Execution] = {}
    for execution in executions:
        if not execution.is_of_this_boot:
            continue
        found = _sessions_of(execution, existing)
        sessions.update((session, execution) for session in found if session not in spared)
    return sessions


def _sessions_of(execution: Execution, existing: Collection[Process]) -> Iterator[int]:
    if execution.leader is None:
        for process in existing:
            is_leader = process.pid == process.session and process.started >= execution.since
            if is_leader and _works_for(process, execution.container_id):
                yield process.session
        return
    pid, started = execution.leader
    members = [process for process in existing if process.session == pid]
    leaders = [process.started for process in members if process.pid == pid]
    if started in leaders or (not leaders and any(_works_for(process, execution.container_id) for process in members)):
        yield pid


def _works_for(process: Process, container_id: str) -> bool:
    if container_id == ALL_CONTAINERS:
        return b"CNI_COMMAND=GC" in environment_of(process)
    return b"CNI_CONTAINERID=" + container_id.encode() in environment_of(process)


def _members(sessions: Mapping[int, Execution]) -> tuple[Process, ...]:
    """Return the processes in sessions, except those of a later session that reuses the number."""
    found = tuple(process for process in processes() if process.session in sessions and not process.ended)
    later = set()
    for process in found:
        leader = sessions[process.session].leader
        if process.pid == process.session and leader is not None and process.started != leader[1]:
            later.add(process.session)
    return tuple(process for process in found if process.session not in later)


def _kill_all(running: Iterable[Process], deadline: float) -> Iterator[Process]:
    """Kill processes, wait for their end, and yield those that were killed."""
    with ExitStack() as stack:
        ended = select.poll()
        waited_for = 0
        for process in running:
            with suppress(OSError):
                pidfd = os.pidfd_open(process.pid)
                stack.callback(os.close, pidfd)
                if find_process(process.pid) == process:  # else it has ended and its number may be reused
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    ended.register(pidfd, select.POLLIN)
                    waited_for += 1
                    yield process
        while waited_for and (left_s := deadline - time.monotonic()) > 0:
            for pidfd, _ in ended.poll(left_s * 1000):
                ended.unregister(pidfd)
                waited_for -= 1
