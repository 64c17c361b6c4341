# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's API on a lab, for what tests do most often: a call takes 1 ms, and the docker command's start 50 to 100."""

import struct
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPException
from typing import Final

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, as_object, get_int, get_str
from tests.lab import unix_http
from tests.lab.errors import CommandFailed, LabError
from tests.lab.namespaces import Namespaces

DOCKER_SOCKET: Final = "/run/docker.sock"
_LIMIT_S: Final = 60.0
_FRAME: Final = struct.Struct(">B3xI")
_STDOUT: Final = 1
_STDERR: Final = 2


def call(namespaces: Namespaces, method: str, target: str, body: JsonValue = None) -> JsonValue:
    """Return what dockerd answers, e.g. to `GET`, `/containers/web/json`.

    Raises:
        OSError: It does not run, or does not answer in time.
        http.client.HTTPException: It ended in the middle of its answer.
        LabError: It refuses; the message is its own.
    """
    status, found = unix_http.request(namespaces.path(DOCKER_SOCKET), method, target, body, timeout_s=_LIMIT_S)
    if status >= HTTPStatus.BAD_REQUEST:
        message = found.get("message") if isinstance(found, dict) else None
        raise LabError(f"{method} {target}: {status}, {message}")
    return found


def execute(namespaces: Namespaces, container: str, argv: Sequence[str], *, timeout_s: float) -> str:
    """Run a command in a container, as `docker exec` does; return its standard output.

    Raises:
        OSError: It is silent for longer than `timeout_s`.
        LabError: The container does not run, or has no such command.
        CommandFailed: Its exit status is not 0.
    """
    body: JsonObject = {"Cmd": [*argv], "AttachStdout": True, "AttachStderr": True}
    identity = get_str(as_object(call(namespaces, "POST", f"/containers/{container}/exec", body), "exec"), "Id")
    path = namespaces.path(DOCKER_SOCKET)
    status, data = unix_http.send(path, "POST", f"/exec/{identity}/start", {"Detach": False}, timeout_s=timeout_s)
    if status >= HTTPStatus.BAD_REQUEST:
        raise LabError(f"{' '.join(argv)} in {container}: {data.decode(errors='replace').strip()}")
    stdout, stderr = (_read_stream(data, number) for number in (_STDOUT, _STDERR))
    code = get_int(as_object(call(namespaces, "GET", f"/exec/{identity}/json"), "exec"), "ExitCode")
    if code != 0:
        raise CommandFailed(("docker", "exec", container, *argv), code, stdout, stderr)
    return stdout


def _read_stream(data: bytes, wanted: int) -> str:
    """Return one of the streams that dockerd has multiplexed (moby `pkg/stdcopy`)."""
    parts = []
    while data:
        number, size = _FRAME.unpack_from(data)
        if number == wanted:
            parts.append(data[_FRAME.size : _FRAME.size + size])
        data = data[_FRAME.size + size :]
    return b"".join(parts).decode(errors="replace")


def remove(namespaces: Namespaces, target: str) -> None:
    """Remove something as a test ends, e.g. `/networks/lan`; the test's guard reports what is left."""
    try:
        call(namespaces, "DELETE", target)
    except (OSError, HTTPException, LabError):  # it has gone, or the engine does not run
        return
