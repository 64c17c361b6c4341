# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A group of commands whose help has the whole first sentence of each; click cuts it at the end of a line."""

import click
from click.shell_completion import CompletionItem

_UNLIMITED = 1 << 16


class CommandGroup(click.Group):
    """A group whose help is not cut."""

    def first_sentence(self, name: str) -> str:
        """Return the first sentence of a subcommand's help."""
        return self.commands[name].get_short_help_str(_UNLIMITED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their first sentences, over several lines if they are long."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.first_sentence(name)) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self.first_sentence(name)) for name in names]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
