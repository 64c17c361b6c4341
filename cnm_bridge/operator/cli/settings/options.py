# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's settings as options of a command, with values from several sources.

The first source that has a value wins: the command line, the environment (`CNI_BRIDGE_<OPTION>`), the configuration
file, the default. The error for an invalid value names its source.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from cni_invoker.cli.echo import echo
from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.settings.all_settings import SETTINGS
from cnm_bridge.operator.cli.settings.setting import Setting, TomlValue, check_entry, read_config_file
from cnm_bridge.operator.cli.settings.types import FILE

F = TypeVar("F", bound=Callable[..., object])

_DEFAULT_CONFIG: Final = Path("/etc/cni-bridge/config.toml")
_FILE_KEY: Final = "cnm_bridge.configuration_file"
_MISTAKES_KEY: Final = "cnm_bridge.configuration_mistakes"


def with_settings(
    *settings: Setting, has_config: bool = True, hidden: bool = False, tolerant: bool = False
) -> Callable[[F], F]:
    """Return a decorator that adds settings and `--config` as options to a command.

    Args:
        settings: The settings.
        has_config: Whether to add `--config`; only one of several such decorators does.
        hidden: Whether the help leaves the settings out, few of which are ever given.
        tolerant: Whether what is wrong in the file is a warning, and left out: for commands that ask the daemon, which
            runs with what was there before.
    """

    def decorate(function: F) -> F:
        for setting in reversed(settings):
            function = _option(setting, hidden=hidden)(function)
        return _config_option(tolerant=tolerant)(function) if has_config else function

    return decorate


class _Option(click.Option):
    """An option whose errors name the source of the value."""

    def process_value(self, ctx: click.Context, value: object) -> object:
        """Convert and check a value."""
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as exc:
            text = f"{exc.message.rstrip('.')} ({self._origin(ctx)})"
            raise click.BadParameter(text, exc.ctx or ctx, exc.param or self) from exc

    def _origin(self, ctx: click.Context) -> str:
        match ctx.get_parameter_source(self.name or ""):
            case ParameterSource.COMMANDLINE:
                return "from the command line"
            case ParameterSource.ENVIRONMENT:
                names = [self.envvar] if isinstance(self.envvar, str) else self.envvar or ()
                return f"from the environment variable {next((name for name in names if os.environ.get(name)), '?')}"
            case ParameterSource.DEFAULT_MAP:
                return f"from the file {ctx.meta.get(_FILE_KEY)}, key {self.opts[0].removeprefix('--')}"
            case _:
                return "the default"


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return the settings for the options' values; relative paths start at the working directory."""
    given = Settings(**values)
    return replace(
        given,
        socket=given.socket.absolute(),
        admin_socket=given.admin_path.absolute(),
        state_dir=given.state_dir.absolute(),
        run_dir=given.run_dir.absolute(),
    )


def configuration_file(context: click.Context) -> Path:
    """Return the configuration file of a command with settings; the default one may not exist."""
    return Path(context.meta.get(_FILE_KEY, _DEFAULT_CONFIG))


def configuration_mistakes(context: click.Context) -> tuple[str, ...]:
    """Return what is wrong in the configuration file of a tolerant command, each with the file's name."""
    return tuple(context.meta.get(_MISTAKES_KEY, ()))


def _option(setting: Setting, *, hidden: bool) -> Callable[[F], F]:
    return click.option(
        f"--{setting.name}",
        setting.parameter,
        cls=_Option,
        type=setting.type,
        multiple=setting.multiple,
        default=setting.default,
        envvar=setting.variables if setting.fallback else setting.variables[0],
        show_default=True,
        show_envvar=True,
        hidden=hidden,
        help=setting.help,
    )


def _load_config(context: click.Context, parameter: click.Parameter, path: Path | None, *, tolerant: bool) -> None:
    """Use the file's values as the defaults of the other options."""
    if path is None:
        if not _DEFAULT_CONFIG.exists():
            return
        path = _DEFAULT_CONFIG
    settings = {setting.name: setting for setting in SETTINGS}
    values: dict[str, TomlValue] = {}
    try:
        document = read_config_file(path)
    except OSError as exc:
        raise click.BadParameter(f"{path}: {exc}", context, parameter) from exc
    except ValueError as exc:
        document = {}
        _complain(context, f"{path}: {exc}", tolerant=tolerant)
    for key, value in document.items():
        try:
            check_entry(key, value, settings)
            if tolerant:
                for one in value if isinstance(value, list) else [value]:
                    settings[key].type.convert(one, None, context)
        except BadOption as exc:
            _complain(context, f"{path}: {exc}", tolerant=tolerant)
        except click.BadParameter as exc:
            _complain(context, f"{path}: option {key}: {exc.message}", tolerant=tolerant)
        else:
            values[settings[key].parameter] = value
    context.meta[_FILE_KEY] = path
    context.default_map = values


def _complain(context: click.Context, text: str, *, tolerant: bool) -> None:
    if not tolerant:
        raise click.UsageError(text, context)
    context.meta[_MISTAKES_KEY] = (*configuration_mistakes(context), text)
    echo(f"cni-bridge: warning: {text}; it is left out", err=True)


def _config_option(*, tolerant: bool) -> Callable[[F], F]:
    return click.option(
        "--config",
        cls=_Option,
        type=FILE,
        envvar="CNI_BRIDGE_CONFIG",
        is_eager=True,
        expose_value=False,
        callback=partial(_load_config, tolerant=tolerant),
        help=f"Configuration file (TOML).  [default: {_DEFAULT_CONFIG}, if it exists]",
    )
