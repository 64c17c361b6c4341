# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks a running daemon at its admin socket. Every failure is a `DaemonError`, whose text says what to do."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from cni_bridge_spec import JsonError, JsonObject, as_object, find_str, parse_json
from cnm_bridge import __version__
from cnm_bridge.core.errors import BridgeError
from cnm_bridge.operator.cli.command import ExitStatus
from cnm_bridge.operator.cli.http_client import Body, ask_server

_API: Final = "/v1"
_LIMIT_S: Final = 60.0
"""Time limit for each part of an answer: some requests run plugins."""

_BAD_NAME: Final = frozenset({"badRequest", "notFound"})


_SYSTEMD: Final = Path("/run/systemd/system")
"""It exists if systemd manages the host (sd_booted(3))."""


def start_command() -> str:
    """Return the command that starts the daemon on this host."""
    return "systemctl start cni-bridge" if _SYSTEMD.is_dir() else "cni-bridge serve &"


class DaemonError(BridgeError):
    """The daemon does not answer, does not understand the request, or refuses it."""

    def __init__(self, text: str, exit_status: ExitStatus) -> None:
        super().__init__(text)
        self.exit_status = exit_status


class AdminClient:
    """Asks the daemon at an admin socket."""

    def __init__(self, path: Path, limit_s: float = _LIMIT_S) -> None:
        self._path = path
        self._limit_s = limit_s

    def get(self, *path: str, **query: str) -> JsonObject:
        """Return the document at a path below the interface's version, e.g. `get("endpoints", "web")`.

        Raises:
            DaemonError: There is no such document.
        """
        return self._ask("GET", path, query)

    def post(self, *path: str, **query: str) -> JsonObject:
        """Make a request that changes something; return its document. Errors as in `get`."""
        return self._ask("POST", path, query)

    def lines(self, *path: str, **query: str) -> Iterator[JsonObject]:
        """Yield the lines of an answer, one document each, as they arrive. Errors as in `get`."""
        with self._answered("GET", path, query, limit_s=None) as body:
            while line := body.readline():
                yield self._parse(line)

    def _ask(self, verb: str, path: tuple[str, ...], query: Mapping[str, str]) -> JsonObject:
        with self._answered(verb, path, query, limit_s=self._limit_s) as body:
            return self._parse(body.read())

    @contextmanager
    def _answered(
        self, verb: str, path: tuple[str, ...], query: Mapping[str, str], *, limit_s: float | None
    ) -> Iterator[Body]:
        """Yield the body of a successful answer, which has not been read."""
        target = "/".join((_API, *(quote(part, safe="") for part in path)))
        target = f"{target}?{urlencode(query)}" if query else target
        try:
            with ask_server(f"unix://{quote(str(self._path))}", verb, target, limit_s) as (status, body):
                if status != HTTPStatus.OK:
                    raise self._refused(status, body.read())
                yield body
        except OSError as exc:
            raise self._no_answer(exc) from exc

    def _parse(self, body: bytes) -> JsonObject:
        try:
            return as_object(parse_json(body), "the answer")
        except JsonError as exc:
            raise self._stranger(exc) from exc

    def _refused(self, status: int, body: bytes) -> DaemonError:
        answer = self._parse(body)
        text, kind, version = (find_str(answer, key) for key in ("error", "kind", "version"))
        if text is None or kind is None or version is None:
            return self._stranger(f"status {status}")
        if kind == "unknownRequest":
            return DaemonError(
                f"the daemon at {self._path} has version {version} and does not know this request; this command has "
                f"version {__version__}; restart the daemon after an upgrade (systemctl restart cni-bridge)",
                ExitStatus.NO_DAEMON,
            )
        if kind == "internal":
            return DaemonError(text, ExitStatus.NO_DAEMON)
        return DaemonError(text, ExitStatus.USAGE if kind in _BAD_NAME else ExitStatus.FINDINGS)

    def _no_answer(self, error: Exception) -> DaemonError:
        match error:
            case PermissionError():
                text = f"run as root (sudo): only root may use {self._path}"
            case FileNotFoundError() | ConnectionRefusedError():
                reason = os.strerror(error.errno or 0)
                text = (
                    f"no daemon answers on {self._path} ({reason}): does cni-bridge run (start it: {start_command()}), "
                    "and is it as new as this command? Another path: --admin-socket. Without a daemon, "
                    "`cni-bridge state export` prints the state"
                )
            case TimeoutError():
                text = (
                    f"no answer on {self._path} within {self._limit_s:g} s: the daemon is blocked, or does not start "
                    "while systemd holds its socket; journalctl -u cni-bridge shows the reason"
                )
            case _:
                text = f"no answer on {self._path}: {str(error) or type(error).__name__}"
        return DaemonError(text, ExitStatus.NO_DAEMON)

    def _stranger(self, reason: object) -> DaemonError:
        return DaemonError(f"another program answers on {self._path}: {reason}", ExitStatus.NO_DAEMON)
