# SPDX-License-Identifier: Apache-2.0
"""The executable of a plugin: where it is, what its end means, and why the kernel did not execute it."""

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
from cni_invoker.documents.jsontypes import JsonObject, find_str
from cni_invoker.documents.schema import load_validator
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

_GO_PANIC: Final = 2
_GO_STACK: Final = re.compile(rb"^goroutine ", re.MULTILINE)
_GO_MESSAGE: Final = re.compile(rb"^(?:panic|fatal error): .*", re.MULTILINE)

_LOST: Final = "whether it did what it was to do is not known"
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


def judge(request: "Request", path: Path | None, ended: "Ended", limits: "Limits") -> Output:
    """Return the output of a plugin that has ended, and log what it wrote to standard error.

    Raises:
        PluginTimeout: It did not end in time.
        PluginFailed: It ended with an error.
    """
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


def plugin_failure(
    *,
    plugin: str,
    verb: str,
    path: Path | None,
    network: str,
    container_id: str,
    status: int | None,
    stdout: bytes,
    stderr: bytes = b"",
    stderr_tail: Sequence[str] = (),
    hides_output: bool = False,
    duration_s: float,
) -> PluginFailed:
    """Return the error of a plugin that did not end with status 0.

    With `hides_output` it quotes nothing but a CNI error, and says where the rest is.
    """
    exit_status = status if status is not None and status >= 0 else None
    ended_by = _signal_name(-status) if status is not None and status < 0 else None
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
        msg=find_str(found, "msg")
        or (
            _hint(status, describe_end(exit_status, ended_by))
            if hides_output
            else _substitute(status, stdout, error, stderr_tail, describe_end(exit_status, ended_by))
        ),
        details=find_str(found, "details") or "",
        exit_status=exit_status,
        signal=ended_by,
        stderr_tail=stderr_tail,
        duration_s=duration_s,
        crash=ended_by if exit_status != _GO_PANIC else _find_panic(stderr),
    )


def _find_panic(stderr: bytes) -> str | None:
    """Return Go's message of a panic, which the stacks of the goroutines follow; None if there are no stacks."""
    if _GO_STACK.search(stderr) is None:
        return None
    message = _GO_MESSAGE.search(stderr)
    text = "panic" if message is None else message[0].decode("utf-8", "replace").strip()
    return text[:_SHOWN_CHARACTERS]


def _substitute(
    status: int | None, stdout: bytes, error: JsonObject | None, stderr_tail: Sequence[str], end: str
) -> str:
    """Return a message for a plugin that printed none, in libcni's words (`RawExec.pluginErr`)."""
    if status is None:
        return _LOST
    # At most four bytes are a character; to decode all of it would block the event loop.
    said = stdout.strip()[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
    if said and error is None:
        return f"netplugin failed but error parsing its diagnostic message: it printed no CNI error, but: {said}"
    written = " | ".join(stderr_tail)
    return f"netplugin failed: {written}" if written else f"netplugin failed with no error message: {end}"


def _hint(status: int | None, end: str) -> str:
    """Return a message for a plugin that printed none, without what it printed instead."""
    return (
        _LOST
        if status is None
        else f"netplugin failed with no error message: {end}; its output is logged at level debug"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def find_error(stdout: bytes) -> JsonObject | None:
    """Return the last CNI error that a plugin printed, None without one.

    Some plugins also print a result (cni#571) or log lines before or after it.
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
            if isinstance(value, dict) and value.get("msg") is None and isinstance(value.get("code"), int):
                value["msg"] = ""  # not allowed, but the code says what to do
            error = _check_error(value)
            if found is None or _likeness(error) >= _likeness(found):
                found = error
    return found


def _likeness(error: JsonObject) -> tuple[bool, bool]:
    """Return a sort key: objects that are not log lines rank highest, then those with a code."""
    return _OF_A_LOG.isdisjoint(error), bool(error.get("code"))


_HEAD_BYTES: Final = 256
"""How much of a script the kernel reads to find its interpreter (BINPRM_BUF_SIZE)."""


def find_obstacle(path: Path) -> str | None:
    """Return why the kernel would not execute a file, None if no reason is found; nothing is executed.

    It finds a program for another architecture (which runs with binfmt_misc), a script whose interpreter is missing,
    and a file that is neither.
    """
    try:
        with path.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        with Path("/proc/self/exe").open("rb") as opened:
            own = opened.read(_HEAD_BYTES)
    except OSError:  # a file may be executable but not readable
        return None
    if head.startswith(b"#!"):
        return _script_obstacle(head)
    machine = _elf_machine(head)
    if machine is None:
        return "neither a program (ELF) nor a script that names its interpreter ('#!…')"
    here = _elf_machine(own)
    if machine != here:
        return f"built for another architecture than this host's, {os.uname().machine}"
    return None


def _elf_machine(head: bytes) -> int | None:
    """Return `e_machine` of an ELF header (elf(5)), None if it is not an ELF header."""
    if len(head) < 20 or not head.startswith(b"\x7fELF"):  # noqa: PLR2004  # the field's end
        return None
    return int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")  # noqa: PLR2004  # ELFDATA2MSB


def _script_obstacle(head: bytes) -> str | None:
    line = head.partition(b"\n")[0].removeprefix(b"#!").strip()
    words = os.fsdecode(line).split()
    if not words:
        return "a script without the name of its interpreter after '#!'"
    interpreter, *arguments = words
    if not os.access(interpreter, os.X_OK):
        return f"its interpreter {interpreter} is missing"
    if Path(interpreter).name == "env":
        program = next((word for word in arguments if not word.startswith("-") and "=" not in word), None)
        if program is not None and not any(os.access(Path(place, program), os.X_OK) for place in os.get_exec_path()):
            return f"its interpreter {program} is not in PATH"
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
