# SPDX-License-Identifier: Apache-2.0
"""The executable of a plugin: where it is, what its end means, and why the kernel did not execute it."""

import errno
import json
import os
import re
import signal
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from cni_invoker.documents.checks import check_plugin_type
from cni_invoker.documents.jsontypes import JsonObject, as_object, find_str
from cni_invoker.documents.versions import Verb
from cni_invoker.errors import BadResult, ErrorCode, PluginFailed, PluginNotFound, PluginTimeout, describe_end
from cni_invoker.messages import is_debugging, log_event

if TYPE_CHECKING:  # plugins, which start anew for each call, do not load it
    from cni_invoker.documents.request import Request
    from cni_invoker.execution.limits import Limits
    from cni_invoker.execution.process import Ended

T = TypeVar("T")

_LOGGED_LINES: Final = 100
"""How many of the last lines of an output are logged."""

_LOGGED_BYTES: Final = 64 << 10
"""How much of the end of the standard output is decoded to be logged, because that blocks the event loop."""

_SHOWN_CHARACTERS: Final = 500
_ERROR_BYTES: Final = 1 << 16
"""How much of the end of the standard output is searched for an error."""
_ERROR_STARTS: Final = 50
"""How many of the first and of the last `{` are tried, because the search blocks the event loop."""
_ERROR_KEYS: Final = {"cniVersion", "code", "msg", "details"}
_GO_PANIC: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The output of a plugin that succeeded: the beginning of `stdout`, and the last lines of its standard error."""

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


def judge(request: "Request", path: Path | None, ended: "Ended", limits: "Limits") -> Output:
    """Return the output of a plugin that has ended, or raise its error; log what it wrote to standard error."""
    is_logged = is_debugging(__name__)
    lines = _last_lines(ended.stderr, max(limits.stderr_lines, _LOGGED_LINES if is_logged else 0))
    stderr_tail = lines[len(lines) - min(limits.stderr_lines, len(lines)) :]
    about = {"plugin": request.plugin, "verb": request.verb.value}
    for line in lines[-_LOGGED_LINES:]:
        log_event(__name__, "plugin.stderr", **about, line=line)
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
            log_event(__name__, "plugin.stdout", **about, line=line)
        raise plugin_failure(
            plugin=request.plugin,
            verb=request.verb,
            path=path,
            network=request.network,
            container_id=request.environment.get("CNI_CONTAINERID", ""),
            status=ended.status,
            stdout=ended.stdout,
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


def plugin_failure(
    *,
    plugin: str,
    verb: str,
    path: Path | None,
    network: str,
    container_id: str,
    status: int | None,
    stdout: bytes,
    stderr_tail: Sequence[str] = (),
    hides_output: bool = False,
    duration_s: float,
) -> PluginFailed:
    """Return the error of a plugin that did not end with status 0.

    With `hides_output` it quotes nothing but a CNI error, and says where the rest is.
    """
    exit_status = status if status is not None and status >= 0 else None
    ended_by = _signal_name(-status) if status is not None and status < 0 else None
    end = describe_end(exit_status, ended_by)
    error = find_error(stdout)
    found = error or {}
    code = found.get("code")
    return PluginFailed(
        plugin=plugin,
        verb=verb,
        path=path,
        network=network,
        container_id=container_id,
        code=code if isinstance(code, int) and code else ErrorCode.INTERNAL,
        msg=find_str(found, "msg") or _substitute(end, status, stdout, error, stderr_tail, hides_output=hides_output),
        details=find_str(found, "details") or "",
        exit_status=exit_status,
        signal=ended_by,
        stderr_tail=stderr_tail,
        duration_s=duration_s,
        crash=ended_by or (end if exit_status == _GO_PANIC and error is None else None),
    )


def _substitute(
    end: str,
    status: int | None,
    stdout: bytes,
    error: JsonObject | None,
    stderr_tail: Sequence[str],
    *,
    hides_output: bool,
) -> str:
    """Return a message for a plugin that printed none, in libcni's words (`RawExec.pluginErr`)."""
    if status is None:
        return "whether it did what it was to do is not known"
    if hides_output:
        return f"netplugin failed with no error message: {end}; its output is logged at level debug"
    # At most four bytes are a character; to decode all of it would block the event loop.
    said = stdout.strip()[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
    if said and error is None:
        return f"netplugin failed but error parsing its diagnostic message: it printed no CNI error, but: {said}"
    written = " | ".join(stderr_tail)
    return f"netplugin failed: {written}" if written else f"netplugin failed with no error message: {end}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def find_error(stdout: bytes) -> JsonObject | None:
    """Return the CNI error that a plugin printed, None without one.

    Some plugins also print a result (cni#571) or log lines, which have a `msg` and may have a `code`, before or after
    it. So one with a `cniVersion` is preferred, then one with a code, then one with nothing but an error's keys; of
    several, the last one. What is inside an object is not an error of its own.
    """
    text = stdout[-_ERROR_BYTES:].decode("utf-8", "replace")
    starts = [brace.start() for brace in re.finditer("{", text)]
    if len(starts) > 2 * _ERROR_STARTS:
        starts[_ERROR_STARTS:-_ERROR_STARTS] = []
    decoder = json.JSONDecoder()
    found, best, end = None, (False, False, False), 0
    for start in starts:
        if start < end:
            continue
        with suppress(ValueError, RecursionError):  # it is not JSON
            value, end = decoder.raw_decode(text, start)
            if any(not isinstance(value.get(key), str | None) for key in ("msg", "details")):
                continue
            has_code = isinstance(value.get("code"), int) and bool(value["code"])
            rank = "cniVersion" in value, has_code, value.keys() <= _ERROR_KEYS
            if (has_code or value.get("msg")) and rank >= best:
                found, best = as_object(value, "error"), rank
    return found


def why_not_executed(path: Path, number: int) -> str | None:
    """Return what the kernel's error probably means, None if it says that itself."""
    if number == errno.ENOEXEC:
        return f"neither a program for this host ({os.uname().machine}) nor a script that names its interpreter ('#!…')"
    if number == errno.ENOENT:
        with suppress(OSError), path.open("rb") as opened:
            line = opened.readline(_SHOWN_CHARACTERS).decode("utf-8", "replace").strip()
            return f"its interpreter is missing: {line}" if line.startswith("#!") else None
    return None


def _last_lines(output: bytes, count: int) -> tuple[str, ...]:
    return tuple(output.decode("utf-8", "replace").strip().splitlines()[-count:]) if count else ()


def find_plugin(plugin_type: str, plugin_dirs: Sequence[Path]) -> Path:
    """Return the first executable file called `plugin_type` in the plugin directories.

    Unlike libcni's `FindInPath`, it skips files that are not executable, and reports them if it finds no other.

    Raises:
        PluginNotFound: No directory has an executable file of that name.
        InvalidParameter: The type cannot be the name of a file.
    """
    check_plugin_type(plugin_type)
    not_executable = []
    for directory in plugin_dirs:
        path = f"{directory}/{plugin_type}"  # an attachment needs this ten times; a Path takes three times as long
        if os.access(path, os.X_OK) and _is_file(path):
            return Path(path)
        if _is_file(path):
            not_executable.append(Path(path))
    raise PluginNotFound(plugin=plugin_type, directories=plugin_dirs, not_executable=not_executable)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116  # see above
    except OSError:
        return False
