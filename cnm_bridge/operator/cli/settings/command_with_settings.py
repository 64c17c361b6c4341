# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A command whose help shows only its own options: the daemon's settings are those of `cni-bridge serve`."""

from typing import Final

import click

from cnm_bridge.operator.cli.settings.options import is_setting

__all__ = ["CommandWithSettings"]

_SETTINGS: Final = (
    "The options of `cni-bridge serve` are options of this command too, and replace the settings of the running "
    "daemon: --config, --admin-socket, --run-dir, --docker-host, … `cni-bridge serve --help` shows them all."
)


class CommandWithSettings(click.Command):
    """A command that takes all settings of the daemon, few of which are ever given."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and where the others are."""
        own = [one for one in self.get_params(ctx) if isinstance(one, click.Option) and not is_setting(one)]
        with formatter.section("Options"):
            formatter.write_dl([record for one in own if (record := one.get_help_record(ctx)) is not None])
        with formatter.section("Settings"):
            formatter.write_text(_SETTINGS)
