# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks a running daemon for its status."""

import json
import socket
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject

__all__ = ["NO_ANSWER", "ask_status"]

NO_ANSWER: Final = (OSError, HTTPException, ValueError)
"""What `ask_status` raises if there is no valid answer."""

_METHOD: Final = "/CniBridge.Status"
_LIMIT_S: Final = 10.0


def ask_status(path: Path) -> JsonObject:
    """Return the status document of the daemon at a plugin socket.

    Raises:
        OSError, HTTPException, ValueError: There is no valid answer; see `NO_ANSWER`.
    """
    connection = _UnixConnection(path)
    try:
        connection.request("POST", _METHOD)
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if not isinstance(answer, dict) or "pendingTeardowns" not in answer:
        raise ValueError(f"another program answers there: {answer}")
    return answer


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("cni-bridge", timeout=_LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_LIMIT_S)
        self.sock.connect(str(self._path))
