# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Carries out one request: runs the plugin and tells apart its answer and the ways in which it can fail."""

import asyncio
import errno
import json
import logging
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cni_invoker.codes import ErrorCode
from cni_invoker.execution.executable import find_obstacle
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.process import Ended, run_program
from cni_invoker.execution.request import Request
from cni_invoker.plugin_errors import BadResult, PluginFailed, PluginNotStarted, PluginTimeout
from cni_invoker.verbs import Verb
from spec import JsonObject, find_str, get_str, load_validator

__all__ = ["Output", "execute"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_TEXT_BUSY_PAUSE_S: Final = 0.05
"""Copying a plugin into its place takes about this long."""

_SHOWN_CHARACTERS: Final = 500
_ERROR_BYTES: Final = 1 << 16
"""An error is looked for in so much of the end of the standard output."""
_ERROR_STARTS: Final = 50
"""And at so many of the first and of the last `{` in there: the event loop waits meanwhile."""
_check_error: Final = load_validator("cni/error")  # now, because later there may be no descriptor to read it with
_OF_A_LOG: Final = frozenset({"level", "lvl", "severity", "ts", "time", "timestamp", "logger"})
"""Keys of a line of a log that is written as JSON, which has a `msg` as an error has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a plugin printed that ended well.

    Attributes:
        plugin: The plugin's type.
        verb: What it was asked to do.
        stdout: Its standard output, from the beginning.
        stdout_complete: False if there was more of it than is kept.
        stderr_tail: The last lines of its standard error.
    """

    plugin: str
    verb: Verb
    stdout: bytes
    stdout_complete: bool
    stderr_tail: tuple[str, ...]

    def parse(self, parse: Callable[[bytes], T]) -> T:
        """Return what `parse` makes of the standard output; if it raises `BadResult`, the plugin is named.

        So is one that has printed more than it may. To verbs without a result all of that is nothing.
        """
        try:
            if not self.stdout_complete:
                raise BadResult(f"more than {len(self.stdout)} bytes on standard output")
            return parse(self.stdout)
        except BadResult as exc:
            raise BadResult(exc.reason, plugin=self.plugin, verb=self.verb, stderr_tail=self.stderr_tail) from exc


async def execute(
    request: Request,
    path: Path,
    *,
    deadline: float,
    limits: Limits,
    on_started: Callable[[int], None] = lambda _: None,
) -> Output:
    """Run a plugin and return what it printed.

    Cancellation kills the plugin and all it started.

    Args:
        request: What it is asked.
        path: Its executable.
        deadline: When it must have ended, on the event loop's clock.
        limits: Grace and sizes.
        on_started: Is called with its process ID as soon as it runs.

    Raises:
        PluginNotStarted: The kernel does not execute it.
        PluginTimeout: It did not end by itself in time.
        PluginFailed: It ended with an error.
    """
    ended = await _run(request, path, deadline, limits, on_started)
    stderr_tail = _last_lines(ended.stderr, limits.stderr_lines)
    for line in stderr_tail:
        log.debug("plugin.stderr", extra={"plugin": request.plugin, "verb": request.verb.value, "line": line})
    if ended.timed_out:
        raise PluginTimeout(
            plugin=request.plugin,
            verb=request.verb,
            path=path,
            timeout_s=limits.timeout_s(request.verb, request.ports),
            started=True,
            stderr_tail=stderr_tail,
        )
    if ended.status != 0:
        raise _failure(request, path, ended, stderr_tail)
    return Output(
        plugin=request.plugin,
        verb=request.verb,
        stdout=ended.stdout,
        stdout_complete=ended.stdout_complete,
        stderr_tail=stderr_tail,
    )


async def _run(
    request: Request, path: Path, deadline: float, limits: Limits, on_started: Callable[[int], None]
) -> Ended:
    loop = asyncio.get_running_loop()
    patience = min(deadline, loop.time() + limits.text_busy_s)
    while True:
        try:
            return await run_program(
                path,
                request.environment,
                request.stdin,
                deadline=deadline,
                grace_s=limits.grace_s,
                stdout_bytes=limits.stdout_bytes,
                stderr_bytes=limits.stderr_bytes,
                descriptors=limits.descriptors,
                on_started=on_started,
            )
        except OSError as exc:
            if exc.errno != errno.ETXTBSY or loop.time() + _TEXT_BUSY_PAUSE_S > patience:
                reason = _why_not_started(exc, path)
                raise PluginNotStarted(plugin=request.plugin, verb=request.verb, path=path, reason=reason) from exc
        await asyncio.sleep(_TEXT_BUSY_PAUSE_S)


def _why_not_started(exc: OSError, path: Path) -> str:
    obstacle = find_obstacle(path) if exc.errno in {errno.ENOEXEC, errno.ENOENT} else None
    return "; ".join(filter(None, (os.strerror(exc.errno or 0), obstacle)))


def _failure(request: Request, path: Path, ended: Ended, stderr_tail: tuple[str, ...]) -> PluginFailed:
    status = ended.status
    error = _find_error(ended.stdout)
    if error is None:
        said = ended.stdout.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
        error = {"msg": f"it printed no CNI error, but: {said}" if said else "no error message"}
        if status is None:
            error = {"msg": "whether it did what it was to do is not known"}
    code = error.get("code")
    return PluginFailed(
        plugin=request.plugin,
        verb=request.verb,
        path=path,
        code=code if isinstance(code, int) and code else ErrorCode.INTERNAL,
        msg=get_str(error, "msg"),
        details=find_str(error, "details") or "",
        exit_status=status if status is not None and status >= 0 else None,
        signal=_signal_name(-status) if status is not None and status < 0 else None,
        stderr_tail=stderr_tail,
        duration_s=ended.duration_s,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _find_error(stdout: bytes) -> JsonObject | None:
    """Return the last CNI error that a plugin printed.

    It should be all there is; but some plugins print a result first (cni#571), or lines of a log, before or after it.
    """
    text = stdout[-_ERROR_BYTES:].decode("utf-8", "replace")
    starts = [brace.start() for brace in re.finditer("{", text)]
    if len(starts) > 2 * _ERROR_STARTS:
        starts[_ERROR_STARTS:-_ERROR_STARTS] = []
    decoder = json.JSONDecoder()
    found, end = None, 0
    for start in starts:
        if start < end:  # a part of the value before
            continue
        with suppress(ValueError, RecursionError):  # it is no JSON, or no error
            value, end = decoder.raw_decode(text, start)
            error = _check_error(value)
            if found is None or _likeness(error) >= _likeness(found):
                found = error
    return found


def _likeness(error: JsonObject) -> tuple[bool, bool]:
    """Return a sort key: what is no line of a log is more of an error, and then what has a code."""
    return _OF_A_LOG.isdisjoint(error), bool(error.get("code"))


def _last_lines(stderr: bytes, lines: int) -> tuple[str, ...]:
    return tuple(stderr.decode("utf-8", "replace").strip().splitlines()[-lines:])
