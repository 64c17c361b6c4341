# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A group of commands whose help has the whole first sentence of each; click cuts it at the end of a line."""

import click

__all__ = ["CommandGroup"]

_UNLIMITED = 1 << 16


class CommandGroup(click.Group):
    """A group whose help is not cut."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their first sentences, over several lines if they are long."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(_UNLIMITED)) for name, command in found if command is not None]
            )
