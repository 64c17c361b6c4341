# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The boundaries between two effects of a daemon: they are counted and recorded, and one of them kills the daemon.

An effect is everything that outlives the process: a write to the store, a netlink request that changes something, a
mount or a file below the run directory, the start and the end of a plugin, an answer. The daemon's own code knows
nothing of boundaries: `install` wraps the lowest functions through which all effects pass.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from pyroute2.netlink import rtnl

from cni_bridge_spec import JsonObject, Validator, as_object, parse_json
from cni_bridge_state.db import Database
from cni_invoker import Limits
from cni_invoker.execution import executor, process
from cni_invoker.execution.process import Ended
from cnm_bridge.server import rpc
from cnm_bridge.server.rpc import CallsUnderWay, Method
from cnm_bridge.system.kernel import netns, pin
from cnm_bridge.system.kernel.netlink.socket import Message, Netlink, Wanted

ARMED: Final = "armed"
"""The file that starts a count: a word that no earlier count had, and the number of the deadly boundary or 0."""
DEAD: Final = "dead"
"""The file that exists after SIGKILL has ended a run of the daemon; removing it starts the next run."""
TRACE: Final = "trace"
"""The names of the boundaries reached since the last count started, one per line."""
WRITES: Final = "writes"
"""Every write to the store, in all runs: the key, and the phase of the record or `gone`."""

_RUN_DIR: Final = "/run/cni-bridge/"
_RUNNING: Final = "/run/cni-bridge/plugins"
"""Effects below it come right before or after the start and the end of a plugin, which are boundaries themselves."""
_HARMLESS_VERBS: Final = frozenset({"VERSION", "STATUS"})
_KINDS: Final = {kind: name for name, kind in vars(rtnl).items() if name.startswith("RTM_") and type(kind) is int}
_GET: Final = 2  # rtnetlink's message types come in fours, NEW, DEL, GET, SET; GET changes nothing


class Boundaries:
    """Counts boundaries while it is armed, and kills this process at one of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._order: list[str] = []
        self._count = 0

    def reach(self, name: str) -> None:
        """Count a boundary; returns unless it is the deadly one."""
        with self._lock:
            order = self._read_order()
            if order != self._order:
                self._order, self._count = order, 0
            if not order:
                return
            self._count += 1
            _append(self._directory / TRACE, name)
            if self._count == int(order[1]):
                os.kill(os.getpid(), signal.SIGKILL)

    def wrote(self, changes: Mapping[str, bytes | None]) -> None:
        """Record what has been written to the store."""
        with self._lock:
            for key, value in changes.items():
                _append(self._directory / WRITES, f"{key} {_phase(value)}")

    def _read_order(self) -> list[str]:
        try:
            return (self._directory / ARMED).read_text("ascii").split()
        except FileNotFoundError:
            return []


def install(boundaries: Boundaries) -> None:
    """Put a boundary before each effect of this process, and one after those that others may notice."""
    _wrap_store(boundaries)
    _wrap_netlink(boundaries)
    _wrap_files(boundaries)
    _wrap_plugins(boundaries)
    _wrap_answers(boundaries)


def _wrap_store(boundaries: Boundaries) -> None:
    write_now = Database.write_now

    def counted(self: Database, changes: Mapping[str, bytes | None], *, sync: bool = True) -> None:
        described = ", ".join(f"{key.partition('/')[0]} {_phase(value)}" for key, value in changes.items())
        boundaries.reach(f"write {described}")
        write_now(self, changes, sync=sync)
        boundaries.wrote(changes)

    Database.write_now = counted  # type: ignore[method-assign]


def _wrap_netlink(boundaries: Boundaries) -> None:
    request = Netlink.request

    def counted(
        self: Netlink, kind: int, fields: Mapping[str, int], attributes: Wanted = (), *, flags: int = 0
    ) -> tuple[Message, ...]:
        if kind % 4 != _GET:
            boundaries.reach(f"{_KINDS[kind]} {' '.join(name for name, _ in attributes)}".rstrip())
        return request(self, kind, fields, attributes, flags=flags)

    Netlink.request = counted  # type: ignore[method-assign]


def _wrap_files(boundaries: Boundaries) -> None:
    call, touch, unlink, mkdir, write_text = netns._call, Path.touch, Path.unlink, Path.mkdir, Path.write_text
    write_setting = pin.write_setting  # type: ignore[attr-defined]

    def counted_call(function: str, *arguments: int | bytes | ctypes.c_ulong | None) -> None:
        if function.startswith(("mount", "umount")):
            boundaries.reach(function)
        call(function, *arguments)

    def counted_touch(self: Path, mode: int = 0o666, exist_ok: bool = True) -> None:
        _reach_file(boundaries, "touch", self)
        touch(self, mode, exist_ok)

    def counted_unlink(self: Path, missing_ok: bool = False) -> None:
        _reach_file(boundaries, "unlink", self)
        unlink(self, missing_ok)

    def counted_mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if not self.exists():
            _reach_file(boundaries, "mkdir", self)
        mkdir(self, mode, parents, exist_ok)

    def counted_write(self: Path, *given: Any, **more: Any) -> int:  # noqa: ANN401 - passed on
        _reach_file(boundaries, "write", self)
        return write_text(self, *given, **more)

    def counted_setting(name: str, value: str) -> None:
        boundaries.reach(f"set {name}")
        write_setting(name, value)

    netns._call = counted_call
    pin.write_setting = counted_setting  # type: ignore[attr-defined]
    Path.write_text = counted_write  # type: ignore[method-assign]
    Path.touch = counted_touch  # type: ignore[method-assign]
    Path.unlink = counted_unlink  # type: ignore[method-assign]
    Path.mkdir = counted_mkdir  # type: ignore[method-assign]


def _wrap_plugins(boundaries: Boundaries) -> None:
    run_program = process.run_program

    async def counted(
        argv: Sequence[str],
        environment: Mapping[str, str],
        stdin: bytes,
        limits: Limits,
        *,
        deadline: float,
        on_started: Callable[[int], None] = lambda _: None,
    ) -> Ended:
        if environment.get("CNI_COMMAND") in _HARMLESS_VERBS:
            return await run_program(argv, environment, stdin, limits, deadline=deadline, on_started=on_started)
        what = f"{Path(argv[-1]).name} {environment.get('CNI_COMMAND')}"

        def counted_start(pid: int) -> None:
            boundaries.reach(f"while {what} runs")
            on_started(pid)

        boundaries.reach(f"start {what}")
        ended = await run_program(argv, environment, stdin, limits, deadline=deadline, on_started=counted_start)
        boundaries.reach(f"end of {what}")
        return ended

    executor.run_program = counted  # type: ignore[attr-defined]


def _wrap_answers(boundaries: Boundaries) -> None:
    answer = rpc._answer

    async def counted(
        method: Method,
        validate: Validator | None,
        request: web.Request,
        calls: CallsUnderWay,
        caller_pid: int | None,
    ) -> JsonObject | bytes:
        reply = await answer(method, validate, request, calls, caller_pid)
        if callable(method.answer):
            boundaries.reach(f"answer {method.name}")
        return reply

    rpc._answer = counted


def _reach_file(boundaries: Boundaries, what: str, path: Path) -> None:
    if str(path).startswith(_RUN_DIR) and not str(path).startswith(_RUNNING):
        boundaries.reach(what)


def _phase(value: bytes | None) -> str:
    if value is None:
        return "gone"
    _, _, text = value.partition(b"\n")  # after the checksum
    record = parse_json(text) if text else None  # otherwise it is not a record
    return str(as_object(record, "a record").get("phase", "stored")) if isinstance(record, dict) else "stored"


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
