# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge serve`: runs the daemon. Its options are in `cnm_bridge.operator.cli.settings.options`."""

import gc
import sys

import click

from cnm_bridge.core.errors import BridgeError
from cnm_bridge.operator.cli.settings.all_settings import SETTINGS
from cnm_bridge.operator.cli.settings.options import settings_from, with_settings
from cnm_bridge.operator.cli.settings.settings_command import SettingsCommand, read_again
from cnm_bridge.system.lean_imports import lean_imports
from cnm_bridge.system.process.network_sockets import PLUGIN_SOCKET, Listener, metrics_listener, network_listeners
from cnm_bridge.system.process.run_directory import locked_run_directory
from cnm_bridge.system.process.sockets import open_sockets

__all__ = ["serve"]


@click.command("serve", cls=SettingsCommand)
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
            locked_run_directory(settings.run_dir) as run_directory,
        ):
            gc.disable()  # until `settle_memory`: everything that is imported and read before is permanent
            # Imported after the socket is open, so that Docker's calls wait meanwhile: this is most of the start-up.
            with lean_imports(certificates=not settings.docker_host.startswith("unix:")):
                from cnm_bridge.daemon import run  # noqa: PLC0415
                from cnm_bridge.server.reloading import SettingsSource  # noqa: PLC0415
                from cnm_bridge.server.restoring import Restoring  # noqa: PLC0415
                from cnm_bridge.system.log import configure_logging  # noqa: PLC0415

            configure_logging(settings.log_level, settings.log_format)
            source = SettingsSource(
                read=lambda: settings_from(read_again(context)),
                options={setting.parameter: setting.name for setting in SETTINGS},
            )
            plugins = Listener(sockets.plugin, capacity=PLUGIN_SOCKET)
            admin = Listener(sockets.admin.sock)
            restoring = Restoring(run_directory, sockets.admin)
            run(settings, [plugins, *further], source, admin=admin, scrapes=scrapes, restoring=restoring)
    except (BridgeError, OSError) as exc:
        click.echo(f"cni-bridge: {exc}", err=True)
        sys.exit(1)
