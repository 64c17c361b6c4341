# SPDX-License-Identifier: Apache-2.0
"""Records which plugins run, so that those of a killed runtime are killed before the next operation.

A killed runtime cannot kill its plugins, and a DEL beside an ADD that still runs would leave behind what that ADD
makes. So each execution for a container has a file, called `<process ID>-<start>-<random>` after the runtime's process:

```
4f2a… ADD bridge     the container ID, `*` for GC; the verb; the plugin
```

The plugin finds the name of the file in its environment, and so does whatever it runs, such as its IPAM plugin or
iptables. All processes with the name of an orphaned execution are killed, and nothing else: a daemon that a plugin has
started on purpose has the name of an execution that has ended, whose file is gone.
What a plugin starts with a cleaned environment (`env -i`, `sudo`) is not found, and outlives its runtime.

The file is written before the plugin starts, and removed when it has ended. That of a plugin that hangs in the kernel
stays until the next start of the runtime: no DEL may run beside it.
"""

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Final

from cni_invoker.messages import log_event


@cache
def read_boot_id() -> str:
    """Return the kernel's boot ID. Neither processes nor namespaces survive a reboot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def start_of(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since boot; None if there is no such process, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *others = text[text.rindex(b")") + 2 :].split()
    return None if state in {b"Z", b"X"} else int(others[18])


def environment_of(pid: int) -> frozenset[bytes]:
    """Return the environment that a process was started with, as `NAME=value`; empty if it has ended."""
    try:
        return frozenset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return frozenset()


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "ended"
    return " ".join(word.decode(errors="replace") for word in words if word)


VARIABLE: Final = "INVOKED_EXECUTION"
"""The variable with the name of a plugin's file; those that begin with `CNI_` are the specification's."""
ALL_CONTAINERS: Final = "*"
"""Stands for the container ID of a GC: it deletes whatever its runtime did not list as valid, so no ADD of a later
runtime may run beside it."""

_PAUSE_S: Final = 0.01
"""Between two looks at whether all have ended."""


@dataclass(slots=True)
class Kept:
    """One execution that is recorded, or cannot be.

    Attributes:
        environment: What the plugin needs in its environment.
        process: Its process ID, and when it was started; None before.
    """

    environment: Mapping[str, str]
    process: tuple[int, int | None] | None = None

    def on_started(self, pid: int) -> None:
        """Take note of the process, which has not been reaped."""
        self.process = pid, start_of(pid)

    def has_ended(self) -> bool:
        """Return whether it does not run. Unlike its environment, this can be read although it hangs in the kernel."""
        if self.process is None:
            return True
        pid, started = self.process
        return started is None or start_of(pid) != started


class RunningPlugins:
    """Records which plugins this process runs."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._is_reported = False

    @contextmanager
    def keep(self, container_id: str, verb: str, plugin: str) -> Iterator[Kept]:
        """Record a plugin while the body runs it.

        If no file can be written, this is logged once: a DEL must not need a free inode.
        """
        file = None
        if self._directory is not None and container_id:
            file = self._directory / f"{_own_prefix(os.getpid())}{os.urandom(8).hex()}"
            self._write(file, f"{container_id} {verb} {plugin}\n")
        kept = Kept({} if file is None else {VARIABLE: file.name})
        try:
            yield kept
        finally:
            if file is not None and kept.has_ended():
                with suppress(OSError):
                    file.unlink()

    def _write(self, file: Path, content: str) -> None:
        try:
            with suppress(FileExistsError):
                file.parent.mkdir(mode=0o755, parents=True)
            opener = partial(os.open, mode=0o600)
            with open(file, "x", encoding="utf-8", opener=opener) as opened:  # Path.open has no opener
                opened.write(content)
        except OSError as exc:
            if not self._is_reported:
                self._is_reported = True
                log_event(__name__, "plugins.not_kept", directory=str(self._directory), reason=str(exc))


@lru_cache(maxsize=1)
def _own_prefix(pid: int) -> str:
    return f"{pid}-{start_of(pid)}-"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPlugin:
    """A plugin that runs, and the file that records it; for GC `container_id` is `ALL_CONTAINERS`."""

    file: Path
    plugin: str
    verb: str
    container_id: str
    age_s: float

    @property
    def is_orphaned(self) -> bool:
        """Whether its runtime has ended."""
        pid, started, _ = self.file.name.split("-")
        return start_of(int(pid)) != int(started)


def find_running(directory: Path) -> tuple[RunningPlugin, ...]:
    """Return the plugins that run, the oldest first, also those of a runtime that was killed and has not started again.

    Raises:
        OSError: The directory cannot be read; it need not exist.
    """
    found = []
    try:
        files = [*directory.iterdir()]
    except FileNotFoundError:
        return ()
    for file in files:
        with suppress(OSError, ValueError):  # removed meanwhile, or not one of these files
            container_id, verb, plugin = file.read_text("utf-8").removesuffix("\n").split(" ", 2)
            age_s = time.time() - file.stat().st_mtime
            found.append(
                RunningPlugin(file=file, plugin=plugin, verb=verb, container_id=container_id, age_s=max(0.0, age_s))
            )
    return tuple(sorted(found, key=lambda one: -one.age_s))


def find_abandoned(directory: Path, container_ids: Collection[str] | None) -> tuple[RunningPlugin, ...]:
    """Return the executions for some containers, None for all, and all of GC, whose runtime has ended."""
    wanted = None if container_ids is None else {*container_ids, ALL_CONTAINERS}
    running = find_running(directory)
    return tuple(one for one in running if (wanted is None or one.container_id in wanted) and one.is_orphaned)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedPlugin:
    """A process of a plugin that outlived its runtime: the plugin itself, or what it has started."""

    pid: int
    container_id: str
    command: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


def kill_orphaned_plugins(
    directory: Path, container_ids: Collection[str] | None, *, limit_s: float
) -> tuple[tuple[int, ...], tuple[OrphanedPlugin, ...]]:
    """Kill the orphaned plugins of some containers, with whatever they have started.

    Call it before any other operation on these containers. An orphaned GC is killed whatever the containers. Plugins
    whose runtime is alive are left alone.

    Args:
        directory: Where the runtime recorded its running plugins.
        container_ids: The containers, None for all.
        limit_s: How long to wait for the end of all processes together. Each is signalled in any case.

    Returns:
        The process IDs of all killed processes, and what still runs because it hangs in the kernel.

    Raises:
        OSError: The directory cannot be read.
    """
    deadline = time.monotonic() + limit_s
    abandoned = find_abandoned(directory, container_ids)
    killed: dict[int, None] = {}
    is_late = False
    while (running := tuple(_processes(abandoned))) and not is_late:
        killed.update(dict.fromkeys(pid for pid, one in running if _kill(pid, one.file.name)))
        time.sleep(_PAUSE_S)
        is_late = time.monotonic() >= deadline
    for one in () if running else abandoned:
        with suppress(OSError):
            one.file.unlink()
    return tuple(killed), tuple(
        OrphanedPlugin(pid=pid, container_id=one.container_id, command=_command_of(pid)) for pid, one in running
    )


def _processes(plugins: Collection[RunningPlugin]) -> Iterator[tuple[int, RunningPlugin]]:
    marks = {f"{VARIABLE}={one.file.name}".encode(): one for one in plugins}
    for name in os.listdir("/proc") if marks else ():  # noqa: PTH208  # no Path object per name
        if name.isdigit():
            for mark in environment_of(int(name)) & marks.keys():
                yield int(name), marks[mark]


def _kill(pid: int, name: str) -> bool:
    """Kill a process unless its number has been reused; return whether it was killed."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if f"{VARIABLE}={name}".encode() not in environment_of(pid):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True
