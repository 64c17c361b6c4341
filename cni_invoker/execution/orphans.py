# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ends plugins that have outlived their runtime.

A runtime that is killed leaves the plugins behind that it was waiting for. They would go on with an ADD while it is
undone, or after that. Which they are is known from `running`: each leads a session of its own, and what it runs, its
IPAM plugin or iptables, is in that session, also when the plugin itself has been killed. Whatever is in such a session
is ended, and nothing else. A daemon that a plugin has started on purpose is in a session of its own, or in that of a
plugin that has ended by itself, which is not kept any more.

A session that has lost its leader is known by the container's ID in the environment of one of its processes: only then
its number cannot be that of a later one. The same is true of a plugin whose process ID could not be kept, because the
runtime was killed just then.
"""

import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from cni_invoker.execution.process_table import (
    Process,
    command_of,
    environment_of,
    find_process,
    own_sessions,
    processes,
)
from cni_invoker.execution.running import Execution, find_abandoned

__all__ = ["OrphanedPlugin", "find_orphaned_plugins", "kill_orphaned_plugins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedPlugin:
    """A plugin that runs on without its runtime, or a process in its session.

    Attributes:
        pid: The process ID.
        container_id: The container that the plugin is at work for.
        command: Its command line.
    """

    pid: int
    container_id: str
    command: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


def kill_orphaned_plugins(directory: Path, container_ids: Collection[str] | None, *, limit_s: float) -> tuple[int, ...]:
    """Kill the plugins that run on for some containers without their runtime, with all in their sessions.

    To be called before anything else is done for these containers. Plugins whose runtime lives are left alone, and so
    are this process, which may be a plugin itself, and those that have started it.

    Args:
        directory: Where the runtime kept which plugins it ran.
        container_ids: The containers, None for all.
        limit_s: How long to wait for the end of all of them together, in seconds. Each gets its signal all the same.

    Returns:
        The process IDs of all that were killed. `find_orphaned_plugins` tells whether any is still there, because it
        hangs in the kernel.

    Raises:
        OSError: The directory cannot be read.
    """
    deadline = time.monotonic() + limit_s
    executions = find_abandoned(directory, container_ids)
    sessions = _find_sessions(executions)
    killed: dict[Process, None] = {}
    # The leaders first: they start no more then. What they have started may have started something meanwhile.
    running = tuple(leader for leader in _members(sessions) if leader.pid == leader.session) or _members(sessions)
    while running and (time.monotonic() < deadline or not killed.keys() >= set(running)):
        killed.update(dict.fromkeys(_kill_all(running, deadline)))
        running = _members(sessions)
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
    """Return the sessions that plugins lead, or have led, as far as there is a process in them."""
    there = tuple(processes()) if executions else ()
    spared = set(own_sessions()) if executions else set()
    sessions: dict[int, Execution] = {}
    for execution in executions:
        sessions.update((session, execution) for session in _sessions_of(execution, there) if session not in spared)
    return sessions


def _sessions_of(execution: Execution, there: Collection[Process]) -> Iterator[int]:
    if execution.leader is None:
        for process in there:
            is_leader = process.pid == process.session and process.started >= execution.since
            if is_leader and _works_for(process, execution.container_id):
                yield process.session
        return
    pid, started = execution.leader
    members = [process for process in there if process.session == pid]
    leaders = [process.started for process in members if process.pid == pid]
    if started in leaders or (not leaders and any(_works_for(process, execution.container_id) for process in members)):
        yield pid


def _works_for(process: Process, container_id: str) -> bool:
    return b"CNI_CONTAINERID=" + container_id.encode() in environment_of(process)


def _members(sessions: Mapping[int, Execution]) -> tuple[Process, ...]:
    """Return the processes in sessions; those of a later one that has received the number are left out."""
    found = tuple(process for process in processes() if process.session in sessions and not process.ended)
    later = set()
    for process in found:
        leader = sessions[process.session].leader
        if process.pid == process.session and leader is not None and process.started != leader[1]:
            later.add(process.session)
    return tuple(process for process in found if process.session not in later)


def _kill_all(running: Iterable[Process], deadline: float) -> Iterator[Process]:
    """Kill processes, wait for their end, and give those that were there to be killed."""
    with ExitStack() as stack:
        ended = select.poll()
        waited_for = 0
        for process in running:
            with suppress(OSError):
                pidfd = os.pidfd_open(process.pid)
                stack.callback(os.close, pidfd)
                if find_process(process.pid) == process:  # else it has ended, and its number may be another's
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    ended.register(pidfd, select.POLLIN)
                    waited_for += 1
                    yield process
        while waited_for and (left_s := deadline - time.monotonic()) > 0:
            for pidfd, _ in ended.poll(left_s * 1000):
                ended.unregister(pidfd)
                waited_for -= 1
