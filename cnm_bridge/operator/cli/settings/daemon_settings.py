# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The settings of a daemon that runs already."""

from collections.abc import Mapping
from typing import Any, Final

import click
from click.core import ParameterSource

from cni_bridge_spec import JsonValue
from cni_invoker.cli.echo import echo
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.settings.all_settings import SETTINGS
from cnm_bridge.operator.cli.settings.config_file import fits
from cnm_bridge.operator.cli.settings.options import settings_from
from cnm_bridge.operator.cli.settings.setting import Setting

_LIMIT_S: Final = 5.0
"""How long the daemon is waited for; its settings take it a millisecond."""


def daemon_settings(context: click.Context, values: Mapping[str, Any]) -> Settings:
    """Return the settings of the daemon that answers at the admin socket, changed by this command line.

    Args:
        context: The context of a command with all settings as options.
        values: The values of these options. If no daemon answers, or one whose settings this version does not know, the
            settings are those.
    """
    try:
        return running_settings(context, values)
    except (DaemonError, click.BadParameter) as exc:
        own = settings_from(values)
        if isinstance(exc.__cause__, PermissionError) or own.admin_path.exists():
            reason = exc.message if isinstance(exc, click.BadParameter) else exc
            echo(
                f"cni-bridge: the daemon's settings are not known, and those of this command count: {reason}", err=True
            )
        return own


def running_settings(context: click.Context, values: Mapping[str, Any]) -> Settings:
    """Return the settings as `daemon_settings` does, for a command that needs the daemon.

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
    if not fits(setting.kind, value):
        raise click.BadParameter(f"{setting.name} is not {setting.kind.value}", context)
    if isinstance(value, list):
        return tuple(setting.type.convert(item, None, context) for item in value)
    return setting.type.convert(value, None, context)
