# SPDX-License-Identifier: Apache-2.0
"""Records the running plugins in files that survive a killed runtime, and kills the plugins that outlived theirs.

Such a plugin would continue an ADD while it is being undone, or afterwards. Each execution for a container has a file,
named `<process ID>-<start>-<number>` after the runtime's process:

```
4f2a… 1830267 9c1b…  the container ID, `*` for GC, a time before the plugin was started, and the boot ID
71243 1830268        the plugin's process ID, and when it was started
```

The first line is written before the plugin starts and the second right after; the file is removed when the plugin has
ended. That of a plugin that hangs in the kernel stays until the next start of the runtime: no DEL may run beside it.
Times are in clock ticks since boot. A file of another boot is removed: its process IDs are those of others now.

Each plugin leads its own session, which contains whatever it runs, such as its IPAM plugin or iptables, even after its
end. All processes of such a session are killed, and nothing else: a daemon that a plugin started on purpose has its own
session, or is in that of a plugin that has ended normally. A session without its leader is found by the container's
ID in the environment of one of its processes, that of a GC by its command; otherwise its number might have been reused.
The same applies to a plugin whose process ID was not recorded because the runtime was killed at that moment.
"""

import errno
import itertools
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from cni_invoker.execution.process_table import (
    Process,
    command_of,
    environment_of,
    find_process,
    own_sessions,
    processes,
    read_boot_id,
    ticks_now,
)
from cni_invoker.messages import log_event

_FILE_MODE: Final = 0o600
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

ALL_CONTAINERS: Final = "*"
"""Stands for the container ID of a GC: it deletes whatever its runtime did not list as valid, so no ADD of a later
runtime may run beside it."""
_PAUSE_S: Final = 0.01
"""Between two attempts, should the kernel refuse to send a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedPlugin:
    """A plugin that was started, or was about to be started.

    Attributes:
        file: Its file.
        container_id: The container that it works for, or `ALL_CONTAINERS`.
        since: A time before its start.
        leader: Its process ID and start time, None if unknown.
        is_of_this_boot: Whether it may still run.
    """

    file: Path
    container_id: str
    since: int
    leader: tuple[int, int] | None
    is_of_this_boot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPlugin:
    """A plugin that runs now.

    Attributes:
        plugin: The name of its executable.
        verb: Its `CNI_COMMAND`.
        container_id: The container that it works for, or `ALL_CONTAINERS`.
        age_s: For how long it has run, in seconds.
    """

    plugin: str
    verb: str
    container_id: str
    age_s: float


class RunningPlugins:
    """Records which plugins this process runs."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        self._is_reported = False

    @contextmanager
    def keep(self, container_id: str) -> Iterator[Callable[[int], None]]:
        """Record a plugin while the body runs it; the body calls the yielded function with the process ID.

        If no file can be created, this is logged once: a DEL must not need a free inode.
        """
        file = self._make(container_id) if container_id and self._directory is not None else None
        if file is None:
            yield lambda _: None
            return
        plugin: Process | None = None

        def on_started(pid: int) -> None:
            nonlocal plugin
            plugin = find_process(pid)
            if plugin is not None:
                self._add(file, plugin)

        try:
            yield on_started
        finally:
            if plugin is None or not _still_runs(plugin):
                with suppress(OSError):
                    file.unlink()

    def _make(self, container_id: str) -> Path | None:
        assert self._directory is not None  # noqa: S101  # the caller checks this
        content = f"{container_id} {ticks_now()} {read_boot_id()}\n".encode()
        file = self._directory
        try:
            while True:
                file = self._directory / f"{os.getpid()}-{_start_of(os.getpid())}-{next(self._numbers)}"
                try:
                    _write(file, os.O_CREAT | os.O_EXCL, content)
                except FileExistsError:
                    continue
                except FileNotFoundError:
                    self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                else:
                    return file
        except OSError as exc:
            with suppress(OSError):  # it may exist without content
                file.unlink()
            self._report(exc)
            return None

    def _add(self, file: Path, plugin: Process) -> None:
        try:
            _write(file, os.O_APPEND, f"{plugin.pid} {plugin.started}\n".encode())
        except OSError as exc:
            self._report(exc)

    def _report(self, exc: OSError) -> None:
        if not self._is_reported:
            self._is_reported = True
            log_event(__name__, "plugins.not_kept", directory=str(self._directory), reason=str(exc))


@lru_cache(maxsize=1)
def _start_of(pid: int) -> int:
    process = find_process(pid)
    return process.started if process is not None else 0


def find_abandoned(directory: Path, container_ids: Collection[str] | None) -> tuple[StartedPlugin, ...]:
    """Return the executions for some containers, and all of GC, whose runtime no longer runs.

    Raises:
        OSError: The directory cannot be read.
    """
    found = []
    own = f"{os.getpid()}-{_start_of(os.getpid())}-"
    for file in _files(directory):
        if file.name.startswith(own):
            continue
        with suppress(OSError, ValueError):  # removed meanwhile, or not one of these files
            runs = _runs(file.name)
            record = _parse(file)
            is_wanted = container_ids is None or record.container_id in {*container_ids, ALL_CONTAINERS}
            if is_wanted and not (runs and record.is_of_this_boot):
                found.append(record)
    return tuple(found)


def find_running(directory: Path) -> tuple[RunningPlugin, ...]:
    """Return the plugins that run now, the oldest first; also those that a runtime which has ended left behind.

    Args:
        directory: The directory of `RunningPlugins`; it need not exist.

    Raises:
        OSError: The directory cannot be read.
    """
    found = []
    for file in _files(directory):
        with suppress(OSError, ValueError):  # removed meanwhile, or not one of these files
            record = _parse(file)
            pid, started = record.leader or (0, 0)
            process = find_process(pid) if record.is_of_this_boot else None
            if process is not None and process.started == started and not process.ended:
                variables = dict(one.decode(errors="replace").partition("=")[::2] for one in environment_of(process))
                found.append(
                    RunningPlugin(
                        plugin=command_of(pid).partition(" ")[0].rpartition("/")[2],
                        verb=variables.get("CNI_COMMAND", ""),
                        container_id=record.container_id,
                        age_s=(ticks_now() - started) / _TICKS_PER_S,
                    )
                )
    return tuple(sorted(found, key=lambda one: -one.age_s))


def _files(directory: Path) -> list[Path]:
    """Return the files of a directory in order, none if it does not exist."""
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []


def _runs(name: str) -> bool:
    """Return whether the process in a file's name still runs."""
    pid, started, _ = map(int, name.split("-"))
    runtime = find_process(pid)
    return runtime is not None and runtime.started == started and not runtime.ended


def _still_runs(plugin: Process) -> bool:
    found = find_process(plugin.pid)
    return found is not None and found == plugin and not found.ended


def _parse(file: Path) -> StartedPlugin:
    first, *others = file.read_text("utf-8").splitlines()
    container_id, since, boot_id = first.split()
    leader = None
    if others:
        pid, started = map(int, others[-1].split())  # earlier lines are from attempts while the plugin's file was busy
        leader = (pid, started)
    return StartedPlugin(
        file=file,
        container_id=container_id,
        since=int(since),
        leader=leader,
        is_of_this_boot=boot_id == read_boot_id(),
    )


def _write(file: Path, flags: int, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC | flags, _FILE_MODE)
    try:
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
    finally:
        os.close(descriptor)


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
    whose runtime is alive, this process and its ancestors are left alone.

    Args:
        directory: Where the runtime recorded its running plugins.
        container_ids: The containers, None for all.
        limit_s: How long to wait for the end of all processes together, in seconds. Each is signalled in any case.

    Returns:
        The process IDs of all killed processes. `find_orphaned_plugins` returns those that hang in the kernel.

    Raises:
        OSError: The directory cannot be read.
    """
    deadline = time.monotonic() + limit_s
    abandoned = find_abandoned(directory, container_ids)
    sessions = _find_sessions(abandoned)
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
        for record in abandoned:
            with suppress(OSError):
                record.file.unlink()
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


def _find_sessions(abandoned: Collection[StartedPlugin]) -> Mapping[int, StartedPlugin]:
    """Return the sessions of plugins that still contain a process."""
    existing = tuple(processes()) if abandoned else ()
    spared = set(own_sessions()) if abandoned else set()
    sessions: dict[int, StartedPlugin] = {}
    for record in abandoned:
        if not record.is_of_this_boot:
            continue
        found = _sessions_of(record, existing)
        sessions.update((session, record) for session in found if session not in spared)
    return sessions


def _sessions_of(record: StartedPlugin, existing: Collection[Process]) -> Iterator[int]:
    if record.leader is None:
        for process in existing:
            is_leader = process.pid == process.session and process.started >= record.since
            if is_leader and _works_for(process, record.container_id):
                yield process.session
        return
    pid, started = record.leader
    members = [process for process in existing if process.session == pid]
    leaders = [process.started for process in members if process.pid == pid]
    if started in leaders or (not leaders and any(_works_for(process, record.container_id) for process in members)):
        yield pid


def _works_for(process: Process, container_id: str) -> bool:
    if container_id == ALL_CONTAINERS:
        return b"CNI_COMMAND=GC" in environment_of(process)
    return b"CNI_CONTAINERID=" + container_id.encode() in environment_of(process)


def _members(sessions: Mapping[int, StartedPlugin]) -> tuple[Process, ...]:
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
