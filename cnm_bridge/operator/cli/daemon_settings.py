# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The settings of a daemon that runs already, and the options that find it."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Final

import click
from click.core import ParameterSource

from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import ExitStatus, exits
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.options import OPTIONS, SETTINGS, with_settings

_LIMIT_S: Final = 5.0
"""How long the daemon is waited for; its settings take it a millisecond."""


def finds_settings(command: Callable[..., ExitStatus]) -> Callable[..., None]:
    """Return a command's function with the daemon's settings as options; it gets those of `daemon_settings`."""

    @with_settings(*SETTINGS, hidden=True, tolerant=True)
    @exits
    @wraps(command)
    def run(*, settings: Settings, **own: object) -> ExitStatus:
        return command(settings=daemon_settings(settings), **own)

    return run


def daemon_settings(given: Settings) -> Settings:
    """Return the settings of the daemon that answers at the admin socket, changed by this command line.

    If no daemon answers, or one whose settings this version does not know, those that were given count.
    """
    context = click.get_current_context()
    try:
        document = AdminClient(given.admin_path, _LIMIT_S).get("settings")
        running = {
            field: option.cast(document[option.key])
            for field, option in OPTIONS.items()
            if option.key in document and context.get_parameter_source(field) is not ParameterSource.COMMANDLINE
        }
    except (DaemonError, BadOption) as exc:
        if isinstance(exc.__cause__, PermissionError) or given.admin_path.exists():
            echo(f"cni-bridge: the daemon's settings are not known, and those of this command count: {exc}", err=True)
        return given
    return replace(given, **running)


def asks_daemon(*further: str) -> Callable[[Callable[..., ExitStatus]], Callable[..., None]]:
    """Return a decorator that adds the options that find the admin socket, and some further settings.

    The command's function gets the settings as `settings`; see `exits`.
    """

    def decorate(command: Callable[..., ExitStatus]) -> Callable[..., None]:
        return with_settings("admin_socket", "run_dir", *further, tolerant=True)(exits(command))

    return decorate
