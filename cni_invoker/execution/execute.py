# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executes one request: runs the plugin and returns its answer or raises the matching error."""

import asyncio
import errno
import json
import logging
import os
import re
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cni_invoker.codes import ErrorCode
from cni_invoker.documents.jsontypes import JsonObject, find_str
from cni_invoker.documents.schema import load_validator
from cni_invoker.errors import BadResult, PluginFailed, PluginNotStarted, PluginTimeout
from cni_invoker.errors.of_plugins import describe_end
from cni_invoker.execution.exec_failure import find_obstacle
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.plugin_exec import PluginCall, PluginExec
from cni_invoker.execution.process import Ended, run_program
from cni_invoker.execution.request import Request
from cni_invoker.verbs import Verb

__all__ = ["Output", "execute"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_THIS_HOST: Final = PluginExec()

_TEXT_BUSY_PAUSE_S: Final = 0.05
"""Copying a plugin's file takes about this long."""

_SHOWN_CHARACTERS: Final = 500
_ERROR_BYTES: Final = 1 << 16
"""How much of the end of the standard output is searched for an error."""
_ERROR_STARTS: Final = 50
"""How many of the first and of the last `{` are tried, because the search blocks the event loop."""
_check_error: Final = load_validator("error")  # now, because later there may be no descriptor to read it with
_OF_A_LOG: Final = frozenset({"level", "lvl", "severity", "ts", "time", "timestamp", "logger"})
"""Keys of a JSON log line, which has a `msg` like an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The output of a plugin that succeeded.

    Attributes:
        plugin: The plugin's type.
        verb: The operation.
        stdout: Its standard output, from the beginning.
        stdout_complete: False if it was truncated.
        stderr_tail: The last lines of its standard error.
    """

    plugin: str
    verb: Verb
    stdout: bytes
    stdout_complete: bool
    stderr_tail: tuple[str, ...]

    def parse(self, parse: Callable[[bytes], T]) -> T:
        """Return the standard output parsed by `parse`; add the plugin's name to a `BadResult` that it raises.

        Truncated output is a `BadResult` too. Verbs without a result need not call this.
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
    plugin_exec: PluginExec = _THIS_HOST,
) -> Output:
    """Run a plugin and return its output.

    Cancellation kills the plugin and its process group.

    Args:
        request: The request.
        path: The plugin's executable.
        deadline: When it must have ended, on the event loop's clock.
        limits: Grace period and sizes.
        on_started: Called with its process ID as soon as it runs.
        plugin_exec: Runs it.

    Raises:
        PluginNotStarted: The kernel could not execute it.
        PluginTimeout: It did not end in time.
        PluginFailed: It ended with an error.
    """
    ended = await _run(request, path, deadline, limits, on_started=on_started, plugin_exec=plugin_exec)
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
    request: Request,
    path: Path,
    deadline: float,
    limits: Limits,
    *,
    on_started: Callable[[int], None],
    plugin_exec: PluginExec,
) -> Ended:
    async def run(prefix: Sequence[str]) -> Ended:
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
            prefix=prefix,
        )

    call = PluginCall(
        plugin=request.plugin,
        verb=request.verb,
        path=path,
        environment=request.environment,
        stdin=request.stdin,
        run=run,
    )
    loop = asyncio.get_running_loop()
    retry_until = min(deadline, loop.time() + limits.text_busy_s)
    while True:
        try:
            return await plugin_exec.run(call)
        except OSError as exc:
            if exc.errno != errno.ETXTBSY or loop.time() + _TEXT_BUSY_PAUSE_S > retry_until:
                reason = _why_not_started(exc, path)
                raise PluginNotStarted(plugin=request.plugin, verb=request.verb, path=path, reason=reason) from exc
        await asyncio.sleep(_TEXT_BUSY_PAUSE_S)


def _why_not_started(exc: OSError, path: Path) -> str:
    obstacle = find_obstacle(path) if exc.errno in {errno.ENOEXEC, errno.ENOENT} else None
    return "; ".join(filter(None, (os.strerror(exc.errno or 0), obstacle)))


def _failure(request: Request, path: Path, ended: Ended, stderr_tail: tuple[str, ...]) -> PluginFailed:
    status = ended.status
    exit_status = status if status is not None and status >= 0 else None
    ended_by = _signal_name(-status) if status is not None and status < 0 else None
    error = _find_error(ended.stdout)
    found = error or {}
    code = found.get("code")
    return PluginFailed(
        plugin=request.plugin,
        verb=request.verb,
        path=path,
        code=code if isinstance(code, int) and code else ErrorCode.INTERNAL,
        msg=find_str(found, "msg") or _substitute(ended, error, stderr_tail, describe_end(exit_status, ended_by)),
        details=find_str(found, "details") or "",
        exit_status=exit_status,
        signal=ended_by,
        stderr_tail=stderr_tail,
        duration_s=ended.duration_s,
    )


def _substitute(ended: Ended, error: JsonObject | None, stderr_tail: Sequence[str], end: str) -> str:
    """Return a message for a plugin that printed none, in libcni's words (`RawExec.pluginErr`)."""
    if ended.status is None:
        return "whether it did what it was to do is not known"
    said = ended.stdout.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
    if said and error is None:
        return f"netplugin failed but error parsing its diagnostic message: it printed no CNI error, but: {said}"
    written = " | ".join(stderr_tail)
    return f"netplugin failed: {written}" if written else f"netplugin failed with no error message: {end}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _find_error(stdout: bytes) -> JsonObject | None:
    """Return the last CNI error that a plugin printed.

    It should be the whole output, but some plugins also print a result (cni#571) or log lines before or after it.
    """
    text = stdout[-_ERROR_BYTES:].decode("utf-8", "replace")
    starts = [brace.start() for brace in re.finditer("{", text)]
    if len(starts) > 2 * _ERROR_STARTS:
        starts[_ERROR_STARTS:-_ERROR_STARTS] = []
    decoder = json.JSONDecoder()
    found, end = None, 0
    for start in starts:
        if start < end:  # inside the previous value
            continue
        with suppress(ValueError, RecursionError):  # it is not JSON, or not an error
            value, end = decoder.raw_decode(text, start)
            error = _check_error(value)
            if found is None or _likeness(error) >= _likeness(found):
                found = error
    return found


def _likeness(error: JsonObject) -> tuple[bool, bool]:
    """Return a sort key: objects that are not log lines rank highest, then those with a code."""
    return _OF_A_LOG.isdisjoint(error), bool(error.get("code"))


def _last_lines(stderr: bytes, lines: int) -> tuple[str, ...]:
    return tuple(stderr.decode("utf-8", "replace").strip().splitlines()[-lines:])
