# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: shows networks, endpoints, pending teardowns and orphans of a running daemon."""

import http.client
import json
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cnm_bridge.cli.options import SOCKET, with_settings

if TYPE_CHECKING:  # the schemas are slow to load
    from cni_bridge_spec import JsonObject

__all__ = ["status"]

_METHOD: Final = "/CniBridge.Status"
_LIMIT_S: Final = 10.0


@click.command()
@with_settings(SOCKET)
@click.option("--json", "as_json", is_flag=True, help="Print the complete status as JSON, with full IDs.")
def status(*, socket: Path, as_json: bool) -> None:
    """Show networks, endpoints, pending teardowns and orphans of the running daemon.

    The exit status is 0 if there are no pending teardowns and no orphans, else 2; 1 if the daemon does not answer.
    """
    from cnm_bridge.cli.status_text import render_status  # noqa: PLC0415

    try:
        document = _ask(socket)
    except (OSError, http.client.HTTPException, ValueError) as exc:
        click.echo(
            f"cni-bridge: no answer on {socket}: {exc}; is the daemon running? Without it, `cni-bridge state show` "
            "reads the state",
            err=True,
        )
        sys.exit(1)
    click.echo(json.dumps(document, indent=2) if as_json else render_status(document))
    sys.exit(2 if document["pendingTeardowns"] or document["orphans"] else 0)


def _ask(path: Path) -> "JsonObject":
    connection = _UnixConnection(path)
    try:
        connection.request("POST", _METHOD)
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if not isinstance(answer, dict) or "pendingTeardowns" not in answer:
        raise ValueError(f"another program answers there: {answer}")
    return answer


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("cni-bridge", timeout=_LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_LIMIT_S)
        self.sock.connect(str(self._path))
