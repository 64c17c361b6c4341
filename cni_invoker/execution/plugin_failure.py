# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a plugin that failed has printed, as an error; pure."""

import json
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cni_invoker.documents.jsontypes import JsonObject, find_str
from cni_invoker.documents.schema import load_validator
from cni_invoker.errors.of_plugins import PluginFailed, describe_end
from cni_invoker.protocol import ErrorCode

__all__ = ["find_error", "plugin_failure"]

_SHOWN_CHARACTERS: Final = 500
_ERROR_BYTES: Final = 1 << 16
"""How much of the end of the standard output is searched for an error."""
_ERROR_STARTS: Final = 50
"""How many of the first and of the last `{` are tried, because the search blocks the event loop."""
_check_error: Final = load_validator("error")  # now, because later there may be no descriptor to read it with
_OF_A_LOG: Final = frozenset({"level", "lvl", "severity", "ts", "time", "timestamp", "logger"})
"""Keys of a JSON log line, which has a `msg` like an error."""


def plugin_failure(
    *,
    plugin: str,
    verb: str,
    path: Path,
    status: int | None,
    stdout: bytes,
    stderr_tail: Sequence[str] = (),
    duration_s: float,
) -> PluginFailed:
    """Return the error of a plugin that did not end with status 0.

    Args:
        plugin: The plugin's type.
        verb: The operation.
        path: The executable.
        status: Its exit status, negative if a signal ended it; None if it was lost.
        stdout: Its standard output.
        stderr_tail: The last lines of its standard error.
        duration_s: How long it ran, in seconds.
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
        code=code if isinstance(code, int) and code else ErrorCode.INTERNAL,
        msg=find_str(found, "msg")
        or _substitute(status, stdout, error, stderr_tail, describe_end(exit_status, ended_by)),
        details=find_str(found, "details") or "",
        exit_status=exit_status,
        signal=ended_by,
        stderr_tail=stderr_tail,
        duration_s=duration_s,
    )


def _substitute(
    status: int | None, stdout: bytes, error: JsonObject | None, stderr_tail: Sequence[str], end: str
) -> str:
    """Return a message for a plugin that printed none, in libcni's words (`RawExec.pluginErr`)."""
    if status is None:
        return "whether it did what it was to do is not known"
    said = stdout.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
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
    """Return the last CNI error that a plugin printed, None without one.

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
            if isinstance(value, dict) and value.get("msg") is None and isinstance(value.get("code"), int):
                value["msg"] = ""  # not allowed, but the code says what to do
            error = _check_error(value)
            if found is None or _likeness(error) >= _likeness(found):
                found = error
    return found


def _likeness(error: JsonObject) -> tuple[bool, bool]:
    """Return a sort key: objects that are not log lines rank highest, then those with a code."""
    return _OF_A_LOG.isdisjoint(error), bool(error.get("code"))
