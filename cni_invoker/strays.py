# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ends plugins that have outlived their runtime.

A runtime that is killed leaves the plugins behind that it was waiting for. They would go on with an ADD while it is
undone, or after that. Such a plugin is told from everything else by three things:

* It leads its session: each plugin is started in one of its own. What it runs, its IPAM plugin or iptables, is in that
  session and ends with it. A daemon that has forked twice leads no session; one that a plugin started without `setsid`
  is in the session of a plugin that has ended, which has no leader any more.
* Its environment has a verb of CNI, and the container's ID.
* It still has the pipe that was its standard output, and nobody reads that any more. A runtime that lives reads it. A
  daemon that leads a session of its own has let go of it, or whoever ran the plugin would have waited for its end. The
  standard error does not count: libcni lets plugins have its own, so that daemons may keep it.
"""

import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Stray", "end_strays", "find_strays"]

_PROC: Final = Path("/proc")
_CONTAINER_ID: Final = b"CNI_CONTAINERID="
_VERBS: Final = frozenset({b"CNI_COMMAND=ADD", b"CNI_COMMAND=CHECK", b"CNI_COMMAND=DEL"})
_STANDARD_ERROR: Final = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    parent: int = field(compare=False)
    session: int
    started: int
    ended: bool = field(compare=False)


def end_strays(container_ids: Collection[str], *, limit_s: float) -> tuple[int, ...]:
    """Kill the plugins that run on for one of these containers without their runtime, with all in their sessions.

    To be called while no live runtime is at work for these containers, before anything else is done for them. This
    process, which may be a plugin itself, is left alone, and so are those that have started it.

    Args:
        container_ids: The containers.
        limit_s: How long to wait for the end of all of them together, in seconds. Each gets its signal all the same.

    Returns:
        The process IDs of all that were killed. `find_strays` tells whether any is still there, because it hangs in
        the kernel.
    """
    deadline = time.monotonic() + limit_s
    leaders = tuple(leader for leader, _ in _leaders(container_ids))
    killed: dict[_Process, None] = {}
    # The leaders first: they start no more then. What they have started may have started something meanwhile.
    running = leaders
    while running and (time.monotonic() < deadline or not killed.keys() >= set(running)):
        killed.update(dict.fromkeys(_kill_all(running, deadline)))
        running = _members(leaders)
    return tuple(process.pid for process in killed)


def find_strays(container_ids: Collection[str]) -> tuple[Stray, ...]:
    """Return what `end_strays` would kill."""
    leaders = dict(_leaders(container_ids))
    containers = {leader.pid: container_id for leader, container_id in leaders.items()}
    return tuple(
        Stray(pid=process.pid, container_id=containers[process.session], command=_command(process.pid))
        for process in dict.fromkeys((*leaders, *_members(leaders)))
    )


def _leaders(container_ids: Collection[str]) -> Iterator[tuple[_Process, str]]:
    """Give the plugins themselves, with the containers that they are at work for."""
    wanted = {_CONTAINER_ID + container_id.encode(): container_id for container_id in container_ids}
    spared = set(_own_sessions()) if wanted else set()
    for process in _processes() if wanted else ():
        if process.pid == process.session and not process.ended and process.session not in spared:
            with suppress(OSError):  # it has ended meanwhile, or is none of ours to look at
                variables = frozenset((_PROC / str(process.pid) / "environ").read_bytes().split(b"\0"))
                at_work_for = wanted.keys() & variables if not variables.isdisjoint(_VERBS) else ()
                if at_work_for and _writes_to_nobody(process.pid) and _find(process.pid) == process:
                    yield process, wanted[min(at_work_for)]


def _members(leaders: Collection[_Process]) -> tuple[_Process, ...]:
    """Return the processes in plugins' sessions; their numbers are not given to others while there are any."""
    started = {leader.pid: leader.started for leader in leaders}
    found = tuple(process for process in _processes() if process.session in started and not process.ended)
    of_others = {process.pid for process in found if process.started != started.get(process.pid, process.started)}
    return tuple(process for process in found if process.session not in of_others)


def _own_sessions() -> Iterator[int]:
    process = _find(os.getpid())
    while process is not None:
        yield process.session
        process = _find(process.parent)


def _processes() -> Iterator[_Process]:
    for path in _PROC.iterdir():
        if path.name.isdigit() and (process := _find(int(path.name))) is not None:
            yield process


def _find(pid: int) -> _Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    state, parent, _, session, *others = text[text.rindex(b")") + 2 :].split()
    return _Process(
        pid=pid, parent=int(parent), session=int(session), started=int(others[15]), ended=state in {b"Z", b"X"}
    )


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "ended"
    return " ".join(word.decode(errors="replace") for word in words if word)


def _writes_to_nobody(pid: int) -> bool:
    """Return whether a process can write to a pipe that nobody reads, its standard error apart.

    A plugin may have given its standard output another number.
    """
    for link in (_PROC / str(pid) / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if link.name != _STANDARD_ERROR and str(link.readlink()).startswith("pipe:") and _is_without_reader(link):
                return True
    return False


def _is_without_reader(link: Path) -> bool:
    if link.lstat().st_mode & 0o200 == 0:  # opened for reading only
        return False
    descriptor = os.open(link, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        asked = select.poll()  # unlike select(2), it takes descriptors of any number
        asked.register(descriptor, 0)
        return any(events & select.POLLERR for _, events in asked.poll(0))
    finally:
        os.close(descriptor)


def _kill_all(processes: Iterable[_Process], deadline: float) -> Iterator[_Process]:
    """Kill processes, wait for their end, and give those that were there to be killed."""
    with ExitStack() as stack:
        ended = select.poll()
        waited_for = 0
        for process in processes:
            with suppress(OSError):
                pidfd = os.pidfd_open(process.pid)
                stack.callback(os.close, pidfd)
                if _find(process.pid) == process:  # else it has ended, and its number may be another's
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    ended.register(pidfd, select.POLLIN)
                    waited_for += 1
                    yield process
        while waited_for and (left_s := deadline - time.monotonic()) > 0:
            for pidfd, _ in ended.poll(left_s * 1000):
                ended.unregister(pidfd)
                waited_for -= 1
