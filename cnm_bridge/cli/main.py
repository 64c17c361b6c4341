# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-bridge`.

A setting comes from the command line, else from the environment (`CNI_BRIDGE_<OPTION>`), else from the configuration
file, else it has its default.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cnm_bridge import __version__
from cnm_bridge.cli.config_file import ValueKind, read_config_file
from cnm_bridge.cli.types import Directory, EngineAddress, File, Seconds
from cnm_bridge.errors import BridgeError
from cnm_bridge.settings import LogFormat, LogLevel, Settings
from cnm_bridge.sockets import plugin_socket

__all__ = ["main"]

F = TypeVar("F", bound=Callable[..., object])

_DEFAULT_CONFIG: Final = Path("/etc/cni-bridge/config.toml")
_DEFAULTS: Final = Settings()

_DIRECTORY: Final = Directory()
_FILE: Final = File()
_SECONDS: Final = Seconds()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cni-bridge", message="%(prog)s %(version)s")
def main() -> None:
    """Docker networks made by CNI plugins."""


def _load_config(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    """Make the file's values the defaults of the other options."""
    if path is None:
        if not _DEFAULT_CONFIG.exists():
            return
        path = _DEFAULT_CONFIG
    options = {p.opts[0].removeprefix("--"): p for p in context.command.params if p is not parameter}
    try:
        values = read_config_file(path, {name: _kind(option) for name, option in options.items()})
    except (OSError, ValueError, BridgeError) as exc:
        raise click.BadParameter(f"{path}: {exc}", context, parameter) from exc
    context.default_map = {options[key].name or key: value for key, value in values.items()}


def _kind(option: click.Parameter) -> ValueKind:
    """Return what an option's value is in the file."""
    if option.multiple:
        return ValueKind.TEXTS
    return ValueKind.NUMBER if option.type is _SECONDS else ValueKind.TEXT


def _setting(
    name: str,
    *names: str,
    type: click.ParamType[Any],  # noqa: A002 - click's word
    default: object,
    fallback: str | None = None,
    multiple: bool = False,
    help: str | None = None,  # noqa: A002 - click's word
) -> Callable[[F], F]:
    """Declare an option that also comes from the environment, as `CNI_BRIDGE_<NAME>`, else from `fallback`."""
    variable = f"CNI_BRIDGE_{name.replace('-', '_').upper()}"
    return click.option(
        f"--{name}",
        *names,
        type=type,
        multiple=multiple,
        default=default,
        envvar=[variable, fallback] if fallback else variable,
        show_default=True,
        show_envvar=True,
        help=help,
    )


@main.command()
@click.option(
    "--config",
    type=_FILE,
    envvar="CNI_BRIDGE_CONFIG",
    is_eager=True,
    expose_value=False,
    callback=_load_config,
    help=f"Configuration file (TOML).  [default: {_DEFAULT_CONFIG}, if it exists]",
)
@_setting("socket", type=_FILE, default=_DEFAULTS.socket, help="The plugin socket; its name is the driver's in Docker.")
@_setting(
    "cni-conf-dir",
    "cni_conf_dirs",
    type=_DIRECTORY,
    multiple=True,
    default=_DEFAULTS.cni_conf_dirs,
    help="Directory of CNI network configurations. Repeatable; the first that has a name wins.",
)
@_setting(
    "cni-bin-dir",
    "cni_bin_dirs",
    type=_DIRECTORY,
    multiple=True,
    default=_DEFAULTS.cni_bin_dirs,
    help="Directory of CNI plugins. Repeatable; the first that has a plugin wins.",
)
@_setting(
    "state-dir", type=_DIRECTORY, default=_DEFAULTS.state_dir, help="Directory of the state; must survive a reboot."
)
@_setting(
    "run-dir",
    type=_DIRECTORY,
    default=_DEFAULTS.run_dir,
    help="Directory of the staging namespaces; may be lost at a reboot.",
)
@_setting(
    "docker-host",
    type=EngineAddress(),
    fallback="DOCKER_HOST",
    default=_DEFAULTS.docker_host,
    help="The Docker Engine API, asked in the background what Docker still has.",
)
@_setting(
    "plugin-timeout",
    "plugin_timeout_s",
    type=_SECONDS,
    default=_DEFAULTS.plugin_timeout_s,
    help="Seconds that one execution of a plugin may take.",
)
@_setting(
    "reconcile-interval",
    "reconcile_interval_s",
    type=_SECONDS,
    default=_DEFAULTS.reconcile_interval_s,
    help="Seconds between two rounds of holding the state against Docker's and the kernel's.",
)
@_setting(
    "drain-timeout",
    "drain_timeout_s",
    type=_SECONDS,
    default=_DEFAULTS.drain_timeout_s,
    help="Seconds that SIGTERM waits for calls under way.",
)
@_setting(
    "log-level",
    type=click.Choice(LogLevel, case_sensitive=False),
    default=LogLevel.INFO.value,
    help="What is worth a line.",
)
@_setting(
    "log-format",
    type=click.Choice(LogFormat, case_sensitive=False),
    default=LogFormat.AUTO.value,
    help="auto is text on a terminal and JSON elsewhere.",
)
def serve(
    *,
    socket: Path,
    cni_conf_dirs: tuple[Path, ...],
    cni_bin_dirs: tuple[Path, ...],
    state_dir: Path,
    run_dir: Path,
    docker_host: str,
    plugin_timeout_s: float,
    reconcile_interval_s: float,
    drain_timeout_s: float,
    log_level: LogLevel,
    log_format: LogFormat,
) -> None:
    """Run the network driver, until SIGTERM."""
    settings = Settings(
        socket=socket.absolute(),
        cni_conf_dirs=cni_conf_dirs,
        cni_bin_dirs=cni_bin_dirs,
        state_dir=state_dir.absolute(),
        run_dir=run_dir.absolute(),
        docker_host=docker_host,
        plugin_timeout_s=plugin_timeout_s,
        reconcile_interval_s=reconcile_interval_s,
        drain_timeout_s=drain_timeout_s,
    )
    try:
        with plugin_socket(settings.socket) as listener:
            # Imported only now: it takes most of the time until the first answer, and Docker can wait meanwhile.
            from cnm_bridge.daemon import run  # noqa: PLC0415
            from cnm_bridge.log import configure_logging  # noqa: PLC0415

            configure_logging(log_level, log_format)
            run(settings, listener)
    except (BridgeError, OSError) as exc:
        click.echo(f"cni-bridge: {exc}", err=True)
        sys.exit(1)
