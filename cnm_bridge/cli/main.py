# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-bridge`; what its options are, and where their values come from, is in `cnm_bridge.cli.options`."""

import sys
from pathlib import Path

import click

from cnm_bridge import __version__
from cnm_bridge.cli.explain import explain
from cnm_bridge.cli.options import SETTINGS, with_settings
from cnm_bridge.cli.state import state
from cnm_bridge.cli.status import status
from cnm_bridge.errors import BridgeError
from cnm_bridge.settings import LogFormat, LogLevel, Settings
from cnm_bridge.sockets import plugin_socket

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cni-bridge", message="%(prog)s %(version)s")
def main() -> None:
    """Docker networks made by CNI plugins."""


main.add_command(explain)
main.add_command(state)
main.add_command(status)


@main.command()
@with_settings(*SETTINGS)
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
    cni_gc: bool,
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
        cni_gc=cni_gc,
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
