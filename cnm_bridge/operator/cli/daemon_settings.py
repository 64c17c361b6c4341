# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The settings of a daemon that runs already, and the options that find it."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from cni_bridge_spec import JsonValue
from cni_invoker.cli.echo import echo
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import ExitStatus, exits
from cnm_bridge.operator.cli.options import ADMIN_SOCKET, RUN_DIR, SETTINGS, settings_from, with_settings
from cnm_bridge.operator.cli.setting import Setting

_LIMIT_S: Final = 5.0
"""How long the daemon is waited for; its settings take it a millisecond."""


def finds_settings(command: Callable[..., ExitStatus]) -> Callable[..., None]:
    """Return a command's function with the daemon's settings as options.

    Args:
        command: Takes `settings`, see `daemon_settings`, and its own options by name; returns the exit status.
    """
    names = frozenset(setting.parameter for setting in SETTINGS)

    @with_settings(*SETTINGS, hidden=True, tolerant=True)
    @click.pass_context
    @exits
    @wraps(command)
    def run(context: click.Context, /, **values: object) -> ExitStatus:
        given = {name: value for name, value in values.items() if name in names}
        own = {name: value for name, value in values.items() if name not in names}
        return command(settings=daemon_settings(context, given), **own)

    return run


def daemon_settings(context: click.Context, values: Mapping[str, Any]) -> Settings:
    """Return the settings of the daemon that answers at the admin socket, changed by this command line.

    Args:
        context: The context of a command with all settings as options.
        values: The values of these options. If no daemon answers, or one whose settings this version does not know, the
            settings are those.
    """
    try:
        return _running_settings(context, values)
    except (DaemonError, click.BadParameter) as exc:
        own = settings_from(values)
        if isinstance(exc.__cause__, PermissionError) or own.admin_path.exists():
            reason = exc.message if isinstance(exc, click.BadParameter) else exc
            echo(
                f"cni-bridge: the daemon's settings are not known, and those of this command count: {reason}", err=True
            )
        return own


def _running_settings(context: click.Context, values: Mapping[str, Any]) -> Settings:
    """Return the settings as `daemon_settings` does.

    Raises:
        DaemonError: No daemon answers.
        click.BadParameter: This version does not know one of the daemon's settings.
    """
    document = AdminClient(settings_from(values).admin_path, _LIMIT_S).get("settings")
    running = {
        setting.parameter: _convert(setting, document[setting.name], context)
        for setting in SETTINGS
        if setting.name in document
    }
    given = {name for name in values if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    return settings_from({**values, **running, **{name: values[name] for name in given}})


def _convert(setting: Setting, value: JsonValue, context: click.Context) -> object:
    """Return the value of a setting for its document.

    Raises:
        click.BadParameter: It is not one; its text names the setting.
    """
    if value is None and setting.default is None:
        return None
    if value == [] and setting.multiple:
        return ()
    if wanted := setting.describe_mismatch(value):
        raise click.BadParameter(f"{setting.name} is not {wanted}", context)
    if isinstance(value, list):
        return tuple(setting.type.convert(item, None, context) for item in value)
    return setting.type.convert(value, None, context)


def asks_daemon(command: Callable[..., ExitStatus]) -> Callable[..., None]:
    """Return a command's function with the options that find the admin socket.

    Args:
        command: Takes the path of the socket, and its own options by name; returns the exit status; see `exits`.
    """

    @with_settings(ADMIN_SOCKET, RUN_DIR, tolerant=True)
    @exits
    @wraps(command)
    def run(*, admin_socket: Path | None, run_dir: Path, **own: object) -> ExitStatus:
        return command(Settings(admin_socket=admin_socket, run_dir=run_dir).admin_path, **own)

    return run
