# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge serve`: runs the daemon. Its options are in `cnm_bridge.operator.cli.options`."""

import gc
import os
import sys
from collections.abc import Mapping

import click

from cnm_bridge.core.errors import BridgeError
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.command import Command, describe_failure
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.options import SETTINGS, with_settings
from cnm_bridge.system.process import locked_run_directory
from cnm_bridge.system.sockets import open_sockets


class _UnusableSettings(click.UsageError):
    exit_code = os.EX_CONFIG


class _SettingsCommand(Command):
    """A command that exits with its own status if its settings are invalid."""

    meanings: Mapping[int, str] = {
        0: "It was stopped by SIGTERM.",
        1: "It could not start; the output says why.",
        os.EX_CONFIG: "A setting is invalid, so a restart is useless.",
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; turn an error into one whose exit status says that a retry is useless."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            raise _UnusableSettings(exc.format_message(), exc.ctx) from exc


@click.command(
    "serve",
    cls=_SettingsCommand,
    examples=("serve", "serve --attach fast --log-level debug"),
)
@with_settings(*SETTINGS)
def serve(settings: Settings) -> None:
    """Run the network driver, until SIGTERM.

    With invalid settings the exit status is 78, and a restart is useless.
    """
    try:
        with open_sockets(settings) as sockets, locked_run_directory(settings.run_dir):
            gc.disable()  # until `resume_garbage_collection`: everything that is imported and read before is permanent
            # Imported after the socket is open, so that Docker's calls wait meanwhile: this is most of the start-up.
            from cnm_bridge.daemon import run  # noqa: PLC0415
            from cnm_bridge.system.log import configure_logging, log_output  # noqa: PLC0415

            with log_output() as output:
                configure_logging(settings.log_level, settings.log_format, output)
                run(settings, sockets, output)
    except (BridgeError, OSError) as exc:
        echo(f"cni-bridge: {describe_failure(exc)}", err=True)
        sys.exit(1)
