# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-bridge` and its subcommand `serve`. The options are in `cnm_bridge.cli.settings.options`."""

import gc
import sys

import click

from cnm_bridge import __version__
from cnm_bridge.cli.commands.check import check
from cnm_bridge.cli.commands.clean_up import gc_command, release, retry
from cnm_bridge.cli.commands.connectivity import test
from cnm_bridge.cli.commands.doctor import doctor
from cnm_bridge.cli.commands.events import events, top
from cnm_bridge.cli.commands.explain import explain
from cnm_bridge.cli.commands.inspect import inspect
from cnm_bridge.cli.commands.install_spec import install_spec
from cnm_bridge.cli.commands.ls import ls
from cnm_bridge.cli.commands.network import network
from cnm_bridge.cli.commands.state import state
from cnm_bridge.cli.commands.status import status
from cnm_bridge.cli.commands.sysdump import sysdump
from cnm_bridge.cli.settings.all_settings import SETTINGS
from cnm_bridge.cli.settings.daemon_settings import settings_from
from cnm_bridge.cli.settings.options import with_settings
from cnm_bridge.cli.settings.settings_command import SettingsCommand, read_again
from cnm_bridge.errors import BridgeError
from cnm_bridge.lean_imports import lean_imports
from cnm_bridge.process.network_sockets import Listener, metrics_listener, network_listeners
from cnm_bridge.process.run_directory import locked_run_directory
from cnm_bridge.process.sockets import open_sockets

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cni-bridge", message="%(prog)s %(version)s")
def main() -> None:
    """Docker networks made by CNI plugins."""


for command in (
    *(check, doctor, events, explain, gc_command, inspect, install_spec, ls, network, release, retry, state, status),
    *(sysdump, test, top),
):
    main.add_command(command)


@main.command(cls=SettingsCommand)
@with_settings(*SETTINGS)
@click.pass_context
def serve(context: click.Context, /, **given: object) -> None:
    """Run the network driver, until SIGTERM.

    SIGHUP reads the settings again. The exit status is 78 if the settings are invalid, and 1 after any other error.
    """
    settings = settings_from(given)
    try:
        with (
            open_sockets(settings) as sockets,
            network_listeners(settings) as further,
            metrics_listener(settings) as scrapes,
            locked_run_directory(settings.run_dir),
        ):
            gc.disable()  # until `settle_memory`: everything that is imported and read before is permanent
            # Imported after the socket is open, so that Docker's calls wait meanwhile: this is most of the start-up.
            with lean_imports(certificates=not settings.docker_host.startswith("unix:")):
                from cnm_bridge.daemon import run  # noqa: PLC0415
                from cnm_bridge.log import configure_logging  # noqa: PLC0415
                from cnm_bridge.reloading import SettingsSource  # noqa: PLC0415

            configure_logging(settings.log_level, settings.log_format)
            source = SettingsSource(
                read=lambda: settings_from(read_again(context)),
                options={setting.parameter: setting.name for setting in SETTINGS},
            )
            plugins, admin = Listener(sockets.plugin), Listener(sockets.admin)
            run(settings, [plugins, *further], source, admin=admin, scrapes=scrapes)
    except (BridgeError, OSError) as exc:
        click.echo(f"cni-bridge: {exc}", err=True)
        sys.exit(1)
