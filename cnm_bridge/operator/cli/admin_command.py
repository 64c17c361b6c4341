# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What all commands that ask the daemon share: the options that find its socket, and how errors end them."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click

from cni_invoker.cli.echo import echo
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.exit_status import ExitStatus, exits
from cnm_bridge.operator.cli.settings.all_settings import ADMIN_SOCKET, RUN_DIR
from cnm_bridge.operator.cli.settings.options import find_mistakes, with_settings


def asks_daemon(command: Callable[..., ExitStatus]) -> Callable[..., None]:
    """Return a command's function with the options that find the admin socket.

    Args:
        command: Takes the path of the socket, and its own options by name; returns the exit status; see `exits`.
    """

    @with_settings(ADMIN_SOCKET, RUN_DIR, ignores_mistakes=True)
    @exits
    @wraps(command)
    def run(*, admin_socket: Path | None, run_dir: Path, **own: object) -> ExitStatus:
        warn_of_mistakes(click.get_current_context())
        return command(Settings(admin_socket=admin_socket, run_dir=run_dir).admin_path, **own)

    return run


def warn_of_mistakes(context: click.Context) -> None:
    """Print the mistakes in the configuration file that a command has ignored."""
    for mistake in find_mistakes(context):
        echo(f"cni-bridge: {mistake}; it is ignored here, but the daemon does not start with it", err=True)
