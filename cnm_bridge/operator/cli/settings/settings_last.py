# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A command whose help shows its own options first, and those of the daemon's settings after them."""

import click

from cnm_bridge.operator.cli.settings.options import is_setting

__all__ = ["SettingsLast"]


class SettingsLast(click.Command):
    """A command that takes all settings of the daemon, few of which are ever given."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two sections."""
        own: list[tuple[str, str]] = []
        settings: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                (settings if is_setting(parameter) else own).append(record)
        sections = {"Options": own, "Settings, otherwise those of the running daemon": settings}
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)
