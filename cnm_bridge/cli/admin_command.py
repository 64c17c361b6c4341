# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What all commands that ask the daemon share: the options that find its socket, and how errors end them."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click

from cnm_bridge.cli.exit_status import ExitStatus
from cnm_bridge.cli.options import ADMIN_SOCKET, RUN_DIR, with_settings
from cnm_bridge.errors import BridgeError
from cnm_bridge.settings import Settings

__all__ = ["asks_daemon"]


def asks_daemon(command: Callable[..., ExitStatus]) -> Callable[..., None]:
    """Return a command's function with the options that find the admin socket.

    Args:
        command: Takes the path of the socket, and its own options by name; returns the exit status. A `BridgeError`
            ends the command with its text, and with the exit status that a `DaemonError` has.
    """

    @with_settings(ADMIN_SOCKET, RUN_DIR)
    @wraps(command)
    def run(*, admin_socket: Path | None, run_dir: Path, **own: object) -> None:
        settings = Settings(admin_socket=admin_socket, run_dir=run_dir)
        try:
            sys.exit(command(settings.admin_path, **own))
        except BridgeError as exc:
            click.echo(f"cni-bridge: {exc}", err=True)
            sys.exit(getattr(exc, "exit_status", ExitStatus.FINDINGS))

    return run
