# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's settings as options of a command, with values from several sources.

The first source that has a value wins: the command line, the environment (`CNI_BRIDGE_<OPTION>`), the configuration
file, the default. The error for an invalid value names its source.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from cnm_bridge.cli.settings.config_file import ValueKind, read_config_file
from cnm_bridge.cli.settings.network_type import Network, refuse_conflicts
from cnm_bridge.cli.settings.types import Directory, EngineAddress, File, ListenAddress, MetricsAddress, Seconds
from cnm_bridge.errors import BridgeError, Refused
from cnm_bridge.settings import AttachOption, LogFormat, LogLevel, ManagedNetwork, Settings

__all__ = [
    "ADMIN_SOCKET",
    "ATTACH",
    "DIRECTORIES",
    "DOCKER_HOST",
    "DRIVER",
    "RUN_DIR",
    "SETTINGS",
    "SOCKET",
    "STATE_DIR",
    "Setting",
    "configuration_file",
    "with_settings",
]

F = TypeVar("F", bound=Callable[..., object])

_DEFAULT_CONFIG: Final = Path("/etc/cni-bridge/config.toml")
_DEFAULTS: Final = Settings()
_FILE_KEY: Final = "cnm_bridge.configuration_file"

_DIRECTORY: Final = Directory()
_FILE: Final = File()
_SECONDS: Final = Seconds()
_NETWORK: Final = Network()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option.

    Attributes:
        name: Its name without dashes, which is also its key in the configuration file.
        parameter: The parameter of the command's function.
        type: The type of its value.
        default: Its default.
        help: Its help text.
        multiple: Whether it may be given several times.
        fallback: An environment variable that is used if the option's own is not set.
    """

    name: str
    parameter: str
    type: click.ParamType[Any]
    default: object
    help: str
    multiple: bool = False
    fallback: str | None = None

    @property
    def kind(self) -> ValueKind:
        """The type of its value in the configuration file."""
        if self.type is _NETWORK:
            return ValueKind.TABLES
        if self.multiple:
            return ValueKind.TEXTS
        if self.type is click.BOOL:
            return ValueKind.TRUTH
        return ValueKind.NUMBER if self.type is _SECONDS else ValueKind.TEXT

    @property
    def variables(self) -> Sequence[str]:
        """Its environment variables; the first that is set wins."""
        own = f"CNI_BRIDGE_{self.name.replace('-', '_').upper()}"
        return [own, self.fallback] if self.fallback else [own]


STATE_DIR: Final = Setting(
    name="state-dir",
    parameter="state_dir",
    type=_DIRECTORY,
    default=_DEFAULTS.state_dir,
    help="Directory of the state; must survive a reboot.",
)

SOCKET: Final = Setting(
    name="socket",
    parameter="socket",
    type=_FILE,
    default=_DEFAULTS.socket,
    help="The plugin socket; its file name is the name of the driver in Docker.",
)

DRIVER: Final = Setting(
    name="driver",
    parameter="driver",
    type=click.STRING,
    default=_DEFAULTS.driver,
    help="The name of the driver in Docker, if it is not the file name of --socket: that of a managed plugin.",
)

DOCKER_HOST: Final = Setting(
    name="docker-host",
    parameter="docker_host",
    type=EngineAddress(),
    fallback="DOCKER_HOST",
    default=_DEFAULTS.docker_host,
    help="Address of the Docker Engine API.",
)

ATTACH: Final = Setting(
    name="attach",
    parameter="attach",
    type=click.Choice(AttachOption, case_sensitive=False),
    default=_DEFAULTS.attach.value,
    help="How to attach endpoints for which cni.attach is not set; auto is the fastest way that is possible.",
)

ADMIN_SOCKET: Final = Setting(
    name="admin-socket",
    parameter="admin_socket",
    type=_FILE,
    default=_DEFAULTS.admin_socket,
    help="The socket of the operator's commands.  [default: admin.sock in --run-dir]",
)

RUN_DIR: Final = Setting(
    name="run-dir",
    parameter="run_dir",
    type=_DIRECTORY,
    default=_DEFAULTS.run_dir,
    help="Directory of the staging namespaces; may be lost at a reboot.",
)

SETTINGS: Final = (
    SOCKET,
    DRIVER,
    ADMIN_SOCKET,
    Setting(
        name="listen",
        parameter="listen",
        type=ListenAddress(),
        multiple=True,
        default=_DEFAULTS.listen,
        help="Listen at tcp://LOOPBACK:PORT or https://ADDRESS:PORT, besides the socket. Repeatable.",
    ),
    Setting(
        name="metrics-listen",
        parameter="metrics_listen",
        type=MetricsAddress(),
        default=_DEFAULTS.metrics_listen,
        help="Serve metrics at http://ADDRESS:PORT/metrics, to everyone who can connect.",
    ),
    Setting(
        name="tls-cert",
        parameter="tls_cert",
        type=_FILE,
        default=_DEFAULTS.tls_cert,
        help="Certificate for --listen https://….",
    ),
    Setting(
        name="tls-key",
        parameter="tls_key",
        type=_FILE,
        default=_DEFAULTS.tls_key,
        help="Private key of that certificate.",
    ),
    Setting(
        name="tls-ca",
        parameter="tls_ca",
        type=_FILE,
        default=_DEFAULTS.tls_ca,
        help="Certificate of the authority that must have signed a client's certificate.",
    ),
    Setting(
        name="cni-conf-dir",
        parameter="cni_conf_dirs",
        type=_DIRECTORY,
        multiple=True,
        default=_DEFAULTS.cni_conf_dirs,
        help="Directory of CNI network configurations. Repeatable; the first that has a name wins.",
    ),
    Setting(
        name="cni-bin-dir",
        parameter="cni_bin_dirs",
        type=_DIRECTORY,
        multiple=True,
        default=_DEFAULTS.cni_bin_dirs,
        help="Directory of CNI plugins. Repeatable; the first that has a plugin wins.",
    ),
    STATE_DIR,
    RUN_DIR,
    DOCKER_HOST,
    Setting(
        name="engine-timeout",
        parameter="engine_timeout_s",
        type=_SECONDS,
        default=_DEFAULTS.engine_timeout_s,
        help="Time limit of a query to the Docker Engine during a call, in seconds.",
    ),
    Setting(
        name="engine-background-timeout",
        parameter="engine_background_timeout_s",
        type=_SECONDS,
        default=_DEFAULTS.engine_background_timeout_s,
        help="Time limit of a query to the Docker Engine in the background, in seconds.",
    ),
    Setting(
        name="plugin-timeout",
        parameter="plugin_timeout_s",
        type=_SECONDS,
        default=_DEFAULTS.plugin_timeout_s,
        help="Time limit of one execution of a plugin, in seconds.",
    ),
    Setting(
        name="reconcile-interval",
        parameter="reconcile_interval_s",
        type=_SECONDS,
        default=_DEFAULTS.reconcile_interval_s,
        help="Seconds between two comparisons of the state with Docker and the kernel.",
    ),
    Setting(
        name="drain-timeout",
        parameter="drain_timeout_s",
        type=_SECONDS,
        default=_DEFAULTS.drain_timeout_s,
        help="Seconds that SIGTERM waits for running calls and teardowns.",
    ),
    ATTACH,
    Setting(
        name="networks",
        parameter="networks",
        type=_NETWORK,
        multiple=True,
        default=_DEFAULTS.networks,
        help="A Docker network to create if it is missing: NAME or NAME=CONFIGURATION. Repeatable; more in the file.",
    ),
    Setting(
        name="allow-inline",
        parameter="allow_inline",
        type=click.BOOL,
        default=_DEFAULTS.allow_inline,
        help="Whether docker network create may pass a CNI configuration itself (-o cni.conflist=JSON).",
    ),
    Setting(
        name="cni-gc",
        parameter="cni_gc",
        type=click.BOOL,
        default=_DEFAULTS.cni_gc,
        help="Whether to run the plugins' GC: only if no other runtime uses networks of the same names.",
    ),
    Setting(
        name="log-level",
        parameter="log_level",
        type=click.Choice(LogLevel, case_sensitive=False),
        default=LogLevel.INFO.value,
        help="The lowest level that is logged.",
    ),
    Setting(
        name="log-format",
        parameter="log_format",
        type=click.Choice(LogFormat, case_sensitive=False),
        default=LogFormat.AUTO.value,
        help="auto is text on a terminal and JSON elsewhere.",
    ),
)

DIRECTORIES: Final = tuple(
    setting for setting in SETTINGS if setting.name in {"cni-conf-dir", "cni-bin-dir", "run-dir"}
)
"""The directories of configurations, plugins and namespaces."""


def with_settings(*settings: Setting, has_config: bool = True) -> Callable[[F], F]:
    """Return a decorator that adds settings and `--config` as options to a command.

    Args:
        settings: The settings.
        has_config: Whether to add `--config`; only one of several such decorators does.
    """

    def decorate(function: F) -> F:
        for setting in reversed(settings):
            function = _option(setting)(function)
        return _CONFIG(function) if has_config else function

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


def is_setting(parameter: click.Parameter) -> bool:
    """Return whether a command's parameter was added by `with_settings`."""
    return isinstance(parameter, _Option) or parameter.name == "config"


def configuration_file(context: click.Context) -> Path:
    """Return the configuration file of a command with settings; the default one may not exist."""
    return Path(context.meta.get(_FILE_KEY, _DEFAULT_CONFIG))


def _option(setting: Setting) -> Callable[[F], F]:
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
        help=setting.help,
        callback=_check_networks if setting.type is _NETWORK else None,
    )


def _check_networks(
    context: click.Context, parameter: click.Parameter, networks: tuple[ManagedNetwork, ...]
) -> tuple[ManagedNetwork, ...]:
    try:
        refuse_conflicts(networks)
    except Refused as exc:
        raise click.BadParameter(str(exc), context, parameter) from exc
    return networks


def _load_config(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Use the file's values as the defaults of the other options."""
    if path is None:
        if not _DEFAULT_CONFIG.exists():
            return
        path = _DEFAULT_CONFIG
    try:
        values = read_config_file(path, {setting.name: setting.kind for setting in SETTINGS})
    except (OSError, ValueError, BridgeError) as exc:
        raise click.BadParameter(f"{path}: {exc}", context, parameter) from exc
    parameters = {setting.name: setting.parameter for setting in SETTINGS}
    context.meta[_FILE_KEY] = path
    context.default_map = {parameters[key]: value for key, value in values.items()}


_CONFIG: Final = click.option(
    "--config",
    cls=_Option,
    type=_FILE,
    envvar="CNI_BRIDGE_CONFIG",
    is_eager=True,
    expose_value=False,
    callback=_load_config,
    help=f"Configuration file (TOML).  [default: {_DEFAULT_CONFIG}, if it exists]",
)
