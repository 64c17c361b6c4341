# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's settings, and how they become options of a command, with values from several sources.

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
from cnm_bridge.operator.cli.setting import (
    FILE,
    Checked,
    Setting,
    TomlValue,
    check_engine_address,
    check_entry,
    check_metrics_address,
    read_config_file,
)

ADMIN_SOCKET: Final = Setting.of(
    "admin_socket", "The socket of the operator's commands.  [default: admin.sock in --run-dir]"
)
STATE_DIR: Final = Setting.of("state_dir", "Directory of the state; must survive a reboot.")
RUN_DIR: Final = Setting.of("run_dir", "Directory of the staging namespaces; may be lost at a reboot.")
DOCKER_HOST: Final = Setting.of(
    "docker_host",
    "Address of the Docker Engine API.",
    kind=Checked("url", check_engine_address),
    fallback="DOCKER_HOST",
)
_CONF_DIRS: Final = Setting.of(
    "cni_conf_dirs", "Directory of CNI network configurations. Repeatable; the first that has a name wins."
)
_BIN_DIRS: Final = Setting.of("cni_bin_dirs", "Directory of CNI plugins. Repeatable; the first that has a plugin wins.")

SETTINGS: Final = (
    Setting.of("socket", "The plugin socket; its file name is the name of the driver in Docker."),
    Setting.of(
        "driver", "The name of the driver in Docker, if it is not the file name of --socket: that of a managed plugin."
    ),
    ADMIN_SOCKET,
    Setting.of(
        "metrics_listen",
        "Serve metrics at http://ADDRESS:PORT/metrics, to everyone who can connect.",
        kind=Checked("address:port", check_metrics_address),
    ),
    _CONF_DIRS,
    _BIN_DIRS,
    STATE_DIR,
    RUN_DIR,
    DOCKER_HOST,
    Setting.of("engine_timeout_s", "Time limit of a query to the Docker Engine during a call, in seconds."),
    Setting.of(
        "engine_background_timeout_s", "Time limit of a query to the Docker Engine in the background, in seconds."
    ),
    Setting.of("plugin_timeout_s", "Time limit of one execution of a plugin, in seconds."),
    Setting.of("reconcile_interval_s", "Seconds between two comparisons of the state with Docker and the kernel."),
    Setting.of(
        "boot_recovery_timeout_s",
        "Seconds that Docker waits at most while the endpoints from before the reboot are torn down.",
    ),
    Setting.of("drain_timeout_s", "Seconds that SIGTERM waits for running calls and teardowns."),
    Setting.of(
        "attach", "How to attach endpoints for which cni.attach is not set; auto loses nothing, fast is faster."
    ),
    Setting.of(
        "scope",
        "local, or global in an instance of its own for swarms whose manager gives all addresses.",
    ),
    Setting.of(
        "allow_inline",
        "Whether docker network create may pass a CNI configuration itself (-o cni.conflist=JSON).",
    ),
    Setting.of(
        "cni_arg_names",
        "Name of an argument of plugins (cni.args.NAME), which Docker's command line puts in lower case. Repeatable.",
        kind=click.STRING,
    ),
    Setting.of("log_level", "The lowest level that is logged."),
    Setting.of("log_format", "auto is text on a terminal and JSON elsewhere."),
)


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
