# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One run: an ADD and several DELs, some of them killed or hindered, and what must hold after each."""

import asyncio
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_invoker import Attachment, CniError, Limits, NetworkConfigurationList, Runtime
from cni_tool import CachedRuntime, FileCache

__all__ = ["Run", "RunFailed"]

_PLUGINS: Final = ("one", "two", "three")
_EVENTS: Final = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.link", "os.truncate", "subprocess.Popen"})
"""Effects on the disk, and the start of a plugin, as Python's audit events: a process is killed just before one."""
_LAST_BOUNDARY: Final = 45
_ORPHAN_LIMIT_S: Final = 20.0
_FAULTS: Final = ("none", "del-fails", "missing", "no descriptors", "full disk", "orphan")
_CONTAINER: Final = "interrupted"
"""No other test has it: a plugin whose process ID was not recorded is found, and killed, by the ID of its container."""
_LIMITS: Final = Limits(retry_pauses_s=(), grace_s=1.0)


class RunFailed(Exception):
    """Something was lost; the message says what, and what had happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One process that adds or deletes.

    Attributes:
        verb: `add` or `delete`.
        fault: What hinders it.
        kill_at: Before which of its effects it is killed; 0: not at all.
        room: How many descriptors or pages of the disk are left, for the faults that take them.
    """

    verb: str
    fault: str
    kill_at: int
    room: int


class Run:
    """A host with a disk of its own, and what a seed does to it.

    Args:
        disk: A small file system.
        directory: Of the plugins, their resources, and what controls them; on another file system.
        seed: Chooses the plugins, the steps and the faults.

    Attributes:
        outcomes: How each step ended: `succeeded`, `killed` or `failed`, after its fault.
    """

    def __init__(self, disk: Path, directory: Path, seed: str) -> None:
        self._chance = random.Random(seed)
        self._disk = disk
        self._cache = disk / "cache"
        self._plugins = directory / "plugins"
        self._resources = directory / "resources"
        self._control = directory / "control"
        self._journal = directory / "journal"
        self._story: list[str] = []
        self.outcomes: list[tuple[str, str]] = []
        for made in (self._cache, self._plugins, self._resources, self._control):
            made.mkdir(parents=True)
        self._journal.touch()
        self._names = _PLUGINS[: self._chance.choice((1, 2, 2, 3))]
        for name in self._names:
            Path(shutil.copy(Path(__file__).with_name("plugin.sh"), self._plugins / name)).chmod(0o755)
        plugins = [{"type": name} for name in self._names]
        self._network = NetworkConfigurationList.from_document(
            {"cniVersion": "1.0.0", "name": "blue", "plugins": plugins}
        )

    def play(self) -> None:
        """Add, delete with faults, and at last delete without any.

        Raises:
            RunFailed: A resource has no record, or a DEL has reported a success that was none.
        """
        self._take(self._choose("add"))
        for _ in range(self._chance.choice((1, 1, 2))):
            self._take(self._choose("delete"))
        (self._control / "go").touch()
        last = _Step(verb="delete", fault="none", kill_at=0, room=0)
        if not self._take(last):
            self._fail("the last DEL fails, without any fault")
        self._wait_for_orphans()
        self._check(succeeded=True)

    def _choose(self, verb: str) -> _Step:
        chance = self._chance
        kill_at = chance.randrange(1, _LAST_BOUNDARY) if chance.random() < 0.7 else 0
        room = chance.randrange(0, 14)
        return _Step(verb=verb, fault=chance.choice(_FAULTS), kill_at=kill_at, room=room)

    def _take(self, step: _Step) -> bool:
        with self._hindered(step):
            ended = _in_process(lambda: self._act(step))
        self._story.append(f"{step} -> {ended}")
        self.outcomes.append((step.fault, ended if ended in {"succeeded", "killed"} else "failed"))
        succeeded = ended == "succeeded"
        self._check(succeeded=succeeded and step.verb == "delete")
        return succeeded

    def _act(self, step: _Step) -> str:
        """Add or delete, in a process of its own."""
        cache = FileCache(self._cache)
        variables = {
            "PATH": os.environ["PATH"],
            "CONTROL": str(self._control),
            "RESOURCES": str(self._resources),
            "JOURNAL": str(self._journal),
        }
        runtime = CachedRuntime(
            Runtime(self._plugins, _LIMITS, environment=variables, running_dir=cache.running_dir), cache
        )
        attachment = Attachment(container_id=_CONTAINER, ifname="eth0", netns="/run/netns/c1")
        if step.fault == "no descriptors":
            used = sum(1 for _ in Path("/proc/self/fd").iterdir())
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + 6 + step.room, used + 6 + step.room))
        if step.kill_at:
            sys.addaudithook(_killer(step.kill_at, str(self._disk)))
        operation = runtime.add if step.verb == "add" else runtime.delete
        try:
            asyncio.run(operation(self._network, attachment))
        except (CniError, OSError) as exc:
            return f"{type(exc).__name__}: {exc}"
        return "succeeded"

    @contextmanager
    def _hindered(self, step: _Step) -> Iterator[None]:
        """Hinder a step, and no other one."""
        name = self._chance.choice(self._names)
        match step.fault, step.verb:
            case "del-fails", _:
                kinds = ("del-fails", "del-fails-late", "fails", "fails-early")
                chosen = self._chance.choice(kinds if step.verb == "add" else kinds[:2])
                for kind in {chosen, "del-fails"} if step.verb == "add" else {chosen}:
                    (self._control / f"{name}.{kind}").touch()
            case "missing", "delete":
                (self._plugins / name).rename(self._control / name)
            case "orphan", "add":
                (self._control / f"{name}.orphan").touch()
            case "full disk", _:
                self._fill(step.room)
            case _:
                pass
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                (self._control / name).rename(self._plugins / name)
            for kind in ("del-fails", "del-fails-late", "fails", "fails-early", "orphan"):
                (self._control / f"{name}.{kind}").unlink(missing_ok=True)
            (self._disk / "filling").unlink(missing_ok=True)

    def _fill(self, free_pages: int) -> None:
        free = os.statvfs(self._disk).f_bavail - free_pages
        size = os.statvfs(self._disk).f_bsize
        with (self._disk / "filling").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(free, 1) * size)

    def _check(self, *, succeeded: bool) -> None:
        """Check what must hold after each step."""
        resources = sorted(file.name for file in self._resources.iterdir())
        records = [
            file for file in (self._cache / "results").glob("*") if file.name.startswith(f"blue-{_CONTAINER}-eth0")
        ]
        journal = [line.split(maxsplit=1) for line in self._journal.read_text().splitlines()]
        if resources and not records:
            self._fail(f"the resources {resources} have no record")
        if succeeded:
            if resources or records:
                self._fail(f"DEL succeeded, and {[*resources, *map(str, records)]} is left")
            last = dict(journal)
            failing = [name for name, what in last.items() if what == "DEL fails" and [name, "ADD begins"] in journal]
            if failing:
                self._fail(f"DEL succeeded, and the last DEL of {failing} failed")

    def _wait_for_orphans(self) -> None:
        """Wait for the end of the plugins that a killed process has left, which have been released."""
        deadline = time.monotonic() + _ORPHAN_LIMIT_S
        while any(self._is_ours(process) for process in Path("/proc").glob("[0-9]*")):
            if time.monotonic() > deadline:
                self._fail("a plugin still runs")
            time.sleep(0.005)

    def _is_ours(self, process: Path) -> bool:
        try:
            return f"CONTROL={self._control}\0".encode() in (process / "environ").read_bytes()
        except OSError:
            return False

    def _fail(self, what: str) -> None:
        steps = "\n  ".join(self._story)
        raise RunFailed(f"{what}\n  {steps}\n  {self._journal.read_text()}")


def _killer(kill_at: int, disk: str) -> Callable[[str, tuple[object, ...]], None]:
    """Return an audit hook that kills this process before one of its effects on the disk or the start of a plugin."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in _EVENTS and (event == "subprocess.Popen" or str(arguments[0]).startswith(disk)):
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _in_process(act: Callable[[], str]) -> str:
    """Run a function in a process of its own; return what it returned, or that it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        said = "it ended with an error of Python"
        try:
            said = act()
        except BaseException as exc:  # noqa: BLE001  # it must not go on as the parent would
            said = f"unexpected {type(exc).__name__}: {exc}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said or "killed"
