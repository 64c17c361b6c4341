# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's API on a lab, for what tests do most often: a call takes 1 ms, and the docker command's start 50 to 100."""

from http import HTTPStatus
from http.client import HTTPException
from typing import Final

from cni_invoker.documents.jsontypes import JsonValue
from tests.lab import unix_http
from tests.lab.errors import LabError
from tests.lab.namespaces import Namespaces

__all__ = ["DOCKER_SOCKET", "call", "remove"]

DOCKER_SOCKET: Final = "/run/docker.sock"
_LIMIT_S: Final = 60.0


def call(namespaces: Namespaces, method: str, target: str) -> JsonValue:
    """Return what dockerd answers, e.g. to `GET`, `/containers/web/json`.

    Raises:
        OSError: It does not run, or does not answer in time.
        LabError: It refuses; the message is its own.
    """
    status, found = unix_http.request(namespaces.path(DOCKER_SOCKET), method, target, timeout_s=_LIMIT_S)
    if status >= HTTPStatus.BAD_REQUEST:
        message = found.get("message") if isinstance(found, dict) else None
        raise LabError(f"{method} {target}: {status}, {message}")
    return found


def remove(namespaces: Namespaces, target: str) -> None:
    """Remove something as a test ends, e.g. `/networks/lan`; the test's guard reports what is left."""
    try:
        call(namespaces, "DELETE", target)
    except (OSError, HTTPException, LabError):  # it has gone, or the engine does not run
        return
