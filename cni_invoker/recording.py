# SPDX-License-Identifier: Apache-2.0
"""Records executions of plugins in a file, and judges them again without the plugins.

Each line of the file is a JSON object: the plugin, verb, path, CNI's variables, standard input, and how it ended. The
values of keys that look like secrets are replaced, in all documents and in CNI_ARGS.
"""

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    as_object,
    find_int,
    find_str,
    get_object,
    get_str,
    parse_json,
    render_json,
)
from cni_invoker.errors import CniError
from cni_invoker.execution.answer import judge
from cni_invoker.execution.executor import PluginCall, PluginExec
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.process import Ended
from cni_invoker.execution.request import Request
from cni_invoker.inputs.checks import StrPath, as_path
from cni_invoker.messages import log_event
from cni_invoker.results import Result, parse_result
from cni_invoker.versions import Verb, parse_version_info

_SECRETS: Final = ("secret", "token", "passw", "credential", "privatekey", "apikey", "auth")
"""Parts of such keys, in lower case, without dashes and underscores."""
_REDACTED: Final = "[redacted]"
_MODE: Final = 0o600


class FakeExec(PluginExec):
    """Executes nothing, for tests of programs that use a runtime.

    Args:
        answer: Returns a plugin's exit status and what it prints.
    """

    def __init__(self, answer: Callable[[PluginCall], tuple[int, JsonValue]]) -> None:
        self._answer = answer

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return a path in the first directory, whether there is a file or not."""
        return Path(*directories[:1], plugin_type)

    async def run(self, call: PluginCall) -> Ended:
        """Return the answer."""
        status, document = self._answer(call)
        return Ended(
            status=status,
            timed_out=False,
            stdout=render_json(document),
            stdout_complete=True,
            stderr=b"",
            duration_s=0.0,
        )


class RecordingExec(PluginExec):
    """Remembers all executions, in order of their ends.

    Args:
        inner: Executes them.

    Attributes:
        calls: Each execution, and how it ended.
    """

    def __init__(self, inner: PluginExec | None = None) -> None:
        self._inner = PluginExec() if inner is None else inner
        self.calls: list[tuple[PluginCall, Ended]] = []

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return the executable of a plugin."""
        return self._inner.find(plugin_type, directories)

    async def run(self, call: PluginCall) -> Ended:
        """Execute a plugin and remember it."""
        ended = await self._inner.run(call)
        self.calls.append((call, ended))
        return ended


class FileRecordingExec(PluginExec):
    """Executes plugins and appends each execution to a file, which several processes may use and `replay` reads.

    If it cannot be written, that is logged.

    Args:
        file: The file; only its owner may read it.
        inner: Executes the plugins; None: on this host.
    """

    def __init__(self, file: StrPath, inner: PluginExec | None = None) -> None:
        self._file = as_path(file, "file")
        self._inner = PluginExec() if inner is None else inner

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return the executable of a plugin."""
        return self._inner.find(plugin_type, directories)

    async def run(self, call: PluginCall) -> Ended:
        """Execute a plugin and record it."""
        ended = await self._inner.run(call)
        line = {
            "plugin": call.plugin,
            "verb": call.verb.value,
            "path": str(call.path),
            "environment": _redacted_variables(call.environment),
            "stdin": _redacted_text(call.stdin),
            "stdout": _redacted_text(ended.stdout),
            "stderr": ended.stderr.decode("utf-8", "replace"),
            "status": ended.status,
            "timedOut": ended.timed_out,
            "complete": ended.stdout_complete,
            "milliseconds": round(ended.duration_s * 1000, 1),
        }
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
            try:
                os.write(descriptor, json.dumps(line).encode() + b"\n")
            finally:
                os.close(descriptor)
        except OSError as exc:
            log_event(__name__, "execution.not_recorded", file=str(self._file), reason=exc.strerror)
        return ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A recorded execution, judged again.

    Attributes:
        request: What the plugin received.
        result: Its result if it is an ADD that succeeded, else None.
        error: What the runtime raises about it, None if it succeeded.
        hint: What is odd about it, empty if nothing is.
    """

    request: Request
    result: Result | None
    error: CniError | None
    hint: str

    def __str__(self) -> str:
        variables = self.request.environment
        place = "/".join(filter(None, map(variables.get, ("CNI_CONTAINERID", "CNI_IFNAME"))))
        ips = ", ".join(str(ip.address) for ip in self.result.ips) if self.result is not None else ""
        return f"{self.request.verb} {self.request.plugin} {place}: {self.error or ips or 'ok'}{self.hint}"


async def replay(file: StrPath) -> AsyncIterator[Replayed]:
    """Yield all executions of a file in order, as this version of the runtime judges them; no plugin runs.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is not a recorded execution.
    """
    for judged in replay_now(file):
        yield judged


def replay_now(file: StrPath) -> Iterator[Replayed]:
    """Yield the same without asyncio."""
    previous: dict[tuple[str, str], Result] = {}
    for line in as_path(file, "file").read_bytes().splitlines():
        recorded = as_object(parse_json(line), "a line")
        judged = _judge(recorded, previous)
        if judged.result is not None:
            previous[_key(judged.request)] = judged.result
        yield judged


def _judge(recorded: JsonObject, previous: Mapping[tuple[str, str], Result]) -> Replayed:
    document = as_object(parse_json(get_str(recorded, "stdin").encode()), "stdin")
    try:
        verb = Verb(get_str(recorded, "verb"))
    except ValueError as exc:
        raise JsonError(str(exc)) from exc
    variables = {key: str(value) for key, value in get_object(recorded, "environment").items()}
    request = Request(plugin=get_str(recorded, "plugin"), verb=verb, environment=variables, stdin=render_json(document))
    result, error, hint = None, None, ""
    if verb is Verb.ADD and "prevResult" in document:
        version = find_str(document, "cniVersion") or ""
        before = previous.get(_key(request))
        if before is not None and redact(before.converted(version).document) != document["prevResult"]:
            hint = "; its prevResult is not what the plugin before it has printed"
    try:
        output = judge(request, Path(get_str(recorded, "path")), _ended(recorded), Limits())
        if verb is Verb.ADD:
            result = output.parse(lambda stdout: parse_result(stdout, find_str(document, "cniVersion") or ""))
        elif verb is Verb.VERSION:
            output.parse(parse_version_info)
    except CniError as exc:
        error = exc
    return Replayed(request=request, result=result, error=error, hint=hint)


def _ended(recorded: JsonObject) -> Ended:
    return Ended(
        status=find_int(recorded, "status"),
        timed_out=recorded.get("timedOut") is True,
        stdout=get_str(recorded, "stdout").encode(),
        stdout_complete=recorded.get("complete") is not False,
        stderr=(find_str(recorded, "stderr") or "").encode(),
        duration_s=0.0,
    )


def redact(value: JsonValue) -> JsonValue:
    """Return a document in which the values of keys that look like secrets are replaced."""
    if isinstance(value, Mapping):
        return {key: _REDACTED if _is_secret(key) else redact(one) for key, one in value.items()}
    return [redact(one) for one in value] if isinstance(value, list | tuple) else value


def _is_secret(text: str) -> bool:
    bare = text.lower().replace("-", "").replace("_", "")
    return any(part in bare for part in _SECRETS)


def _redacted_text(text: bytes) -> str:
    """Return a JSON object without its secrets, and any other text as it is."""
    shown = text.decode("utf-8", "replace")
    if not _is_secret(shown):
        return shown
    try:
        return render_json(redact(as_object(parse_json(text), "it"))).decode()
    except JsonError:
        return shown


def _redacted_variables(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return CNI's variables."""
    kept = {key: value for key, value in environment.items() if key.startswith("CNI_")}
    pairs = (pair.partition("=") for pair in kept.get("CNI_ARGS", "").split(";"))
    args = (f"{key}{sign}{_REDACTED if _is_secret(key) else value}" for key, sign, value in pairs)
    return {**kept, "CNI_ARGS": ";".join(args)}


def _key(request: Request) -> tuple[str, str]:
    return request.environment.get("CNI_CONTAINERID", ""), request.environment.get("CNI_IFNAME", "")
