# SPDX-License-Identifier: Apache-2.0
"""Executes one request: runs the plugin and returns its answer or raises the matching error."""

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cni_invoker.errors import BadResult, PluginNotStarted, PluginTimeout
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.plugin_exec import PluginCall, PluginExec
from cni_invoker.execution.plugin_failure import find_obstacle, plugin_failure
from cni_invoker.execution.process import Ended, run_program
from cni_invoker.execution.request import Request
from cni_invoker.protocol import Verb

__all__ = ["Output", "execute"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_THIS_HOST: Final = PluginExec()

_LOGGED_LINES: Final = 100
"""How many of the last lines of an output are logged."""

_LOGGED_BYTES: Final = 64 << 10
"""How much of the end of the standard output is decoded to be logged, because that blocks the event loop."""

_TEXT_BUSY_PAUSE_S: Final = 0.05
"""Copying a plugin's file takes about this long."""


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
        deadline: When it must have ended, on the clock of `time.monotonic`.
        limits: Grace period and sizes.
        on_started: Called with its process ID as soon as it runs, in another thread.
        plugin_exec: Runs it.

    Raises:
        PluginNotStarted: The kernel could not execute it.
        PluginTimeout: It did not end in time.
        PluginFailed: It ended with an error.
    """
    ended = await _run(request, path, deadline, limits, on_started=on_started, plugin_exec=plugin_exec)
    is_logged = log.isEnabledFor(logging.DEBUG)
    # The caller has limited its size.
    lines = _last_lines(ended.stderr, max(limits.stderr_lines, _LOGGED_LINES if is_logged else 0))
    stderr_tail = lines[len(lines) - min(limits.stderr_lines, len(lines)) :]
    about = {"plugin": request.plugin, "verb": request.verb.value}
    for line in lines[-_LOGGED_LINES:]:
        log.debug("plugin.stderr", extra={**about, "line": line})
    if ended.timed_out:
        raise PluginTimeout(
            plugin=request.plugin,
            verb=request.verb,
            path=path,
            timeout_s=limits.timeout_s(request.verb, request.ports, ipam=request.ipam),
            started=True,
            stderr_tail=stderr_tail,
        )
    if ended.status != 0:
        for line in _last_lines(ended.stdout[-_LOGGED_BYTES:], _LOGGED_LINES) if is_logged else ():
            log.debug("plugin.stdout", extra={**about, "line": line})
        raise plugin_failure(
            plugin=request.plugin,
            verb=request.verb,
            path=path,
            status=ended.status,
            stdout=ended.stdout,
            stderr=ended.stderr,
            stderr_tail=stderr_tail,
            hides_output=limits.stderr_lines == 0 and bool(ended.stderr.strip() or ended.stdout),
            duration_s=ended.duration_s,
        )
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
            oom_score=limits.oom_score,
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
    retry_until = min(deadline, time.monotonic() + limits.text_busy_s)
    while True:
        try:
            return await plugin_exec.run(call)
        except OSError as exc:
            if exc.errno != errno.ETXTBSY or time.monotonic() + _TEXT_BUSY_PAUSE_S > retry_until:
                reason = _why_not_started(exc, path)
                raise PluginNotStarted(plugin=request.plugin, verb=request.verb, path=path, reason=reason) from exc
        await asyncio.sleep(_TEXT_BUSY_PAUSE_S)


def _why_not_started(exc: OSError, path: Path) -> str:
    obstacle = find_obstacle(path) if exc.errno in {errno.ENOEXEC, errno.ENOENT} else None
    return "; ".join(filter(None, (exc.strerror or str(exc), obstacle)))


def _last_lines(output: bytes, count: int) -> tuple[str, ...]:
    return tuple(output.decode("utf-8", "replace").strip().splitlines()[-count:]) if count else ()
