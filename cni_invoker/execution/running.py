# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which plugins run now, in files that outlive a killed runtime.

There is a file for each execution for a container, called `<process ID>-<start>-<number>` after the runtime's process:

```
4f2a… 1830267       the container ID, and a time before the plugin was started
71243 1830268       the plugin's process ID, and when it was started
```

The first line is there before the plugin is, the second as soon as it has been started, and the file is removed when
it has ended. So the file of a process that does not run any more tells what it has left behind. Times are in clock
ticks since the boot. Nothing needs to be on the disk: no process outlives what the kernel holds in memory.
"""

import errno
import itertools
import logging
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from cni_invoker.execution.process_table import find_process, ticks_now

__all__ = ["Execution", "RunningPlugins", "find_abandoned"]

log = logging.getLogger(__name__)

_FILE_MODE: Final = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """A plugin that was started, or was about to be.

    Attributes:
        file: Its file.
        container_id: The container that it works for.
        since: It was not started before.
        leader: Its process ID and when it was started, None if that is not known.
    """

    file: Path
    container_id: str
    since: int
    leader: tuple[int, int] | None


class RunningPlugins:
    """Keeps which plugins this process runs.

    Args:
        directory: Where; it is made when it is first needed. Other processes may use it too. None: nowhere.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        self._is_reported = False

    @contextmanager
    def keep(self, container_id: str) -> Iterator[Callable[[int], None]]:
        """Have the body run a plugin, and pass the process ID to what this gives, as soon as there is one.

        Where no file can be made, that is logged once, and the body runs all the same: a DEL needs no free inode.

        Args:
            container_id: The container; empty if the plugin works for none, and then nothing is kept.
        """
        file = self._make(container_id) if container_id and self._directory is not None else None
        if file is None:
            yield lambda _: None
            return
        try:
            yield lambda pid: self._add(file, pid)
        finally:
            with suppress(OSError):
                file.unlink()

    def _make(self, container_id: str) -> Path | None:
        assert self._directory is not None  # noqa: S101  # the caller has looked
        content = f"{container_id} {ticks_now()}\n".encode()
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
            with suppress(OSError):  # it may be there, without content
                file.unlink()
            self._report(exc)
            return None

    def _add(self, file: Path, pid: int) -> None:
        plugin = find_process(pid)
        if plugin is not None:
            try:
                _write(file, os.O_APPEND, f"{pid} {plugin.started}\n".encode())
            except OSError as exc:
                self._report(exc)

    def _report(self, exc: OSError) -> None:
        if not self._is_reported:
            self._is_reported = True
            log.warning("plugins.not_kept", extra={"directory": str(self._directory), "reason": str(exc)})


@lru_cache(maxsize=1)
def _start_of(pid: int) -> int:
    process = find_process(pid)
    return process.started if process is not None else 0


def find_abandoned(directory: Path, container_ids: Collection[str] | None) -> tuple[Execution, ...]:
    """Return the executions for some containers whose runtime does not run any more.

    Args:
        directory: As of `RunningPlugins`; there are none if it does not exist.
        container_ids: The containers, None for all.

    Raises:
        OSError: The directory cannot be read.
    """
    found = []
    try:
        files = sorted(directory.iterdir())
    except FileNotFoundError:
        return ()
    for file in files:
        with suppress(OSError, ValueError):  # removed meanwhile, or none of ours
            if not _runs(file.name):
                execution = _parse(file)
                if container_ids is None or execution.container_id in container_ids:
                    found.append(execution)
    return tuple(found)


def _runs(name: str) -> bool:
    """Return whether the process runs that a file is called after."""
    pid, started, _ = map(int, name.split("-"))
    runtime = find_process(pid)
    return runtime is not None and runtime.started == started and not runtime.ended


def _parse(file: Path) -> Execution:
    first, *others = file.read_text("utf-8").splitlines()
    container_id, since = first.split()
    leader = None
    if others:
        pid, started = map(int, others[-1].split())  # a plugin whose file was busy has been tried before
        leader = (pid, started)
    return Execution(file=file, container_id=container_id, since=int(since), leader=leader)


def _write(file: Path, flags: int, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC | flags, _FILE_MODE)
    try:
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
    finally:
        os.close(descriptor)
