# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Commands whose help has examples and the exit status; the manual pages have the same.

Nothing of a help is cut.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import wraps
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from cnm_bridge.core.errors import BadOption, BridgeError, UnknownName
from cnm_bridge.operator.cli.echo import echo

_UNLIMITED: Final = 1 << 16
NAME: Final = "cni-bridge"


class ExitStatus(IntEnum):
    """A command's exit status; `MEANINGS` says what each means."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2  # click uses it as well
    NO_DAEMON = 3


def exits(command: Callable[..., ExitStatus]) -> Callable[..., None]:
    """Return a command's function that ends the process with the exit status that `command` returns.

    A `BridgeError` ends it with its text, and with the exit status that it has, else 2 for an option or a name, else 1.
    """

    @wraps(command)
    def run(*args: object, **own: object) -> None:
        try:
            sys.exit(command(*args, **own))
        except PermissionError as exc:
            echo(f"cni-bridge: {describe_failure(exc)}", err=True)
            sys.exit(ExitStatus.FINDINGS)
        except BridgeError as exc:
            echo(f"cni-bridge: {exc}", err=True)
            default = ExitStatus.USAGE if isinstance(exc, BadOption | UnknownName) else ExitStatus.FINDINGS
            sys.exit(getattr(exc, "exit_status", default))

    return run


def describe_failure(error: Exception) -> str:
    """Return an error's text; if the user may not do something, what to do."""
    if os.geteuid() == 0 or not isinstance(error, PermissionError):
        return str(error)
    return f"run as root (sudo): {error.strerror}: {error.filename}"


MEANINGS: Final[Mapping[int, str]] = {
    ExitStatus.FINE: "It was done, or shown, and all is well.",
    ExitStatus.FINDINGS: "Something needs attention, was refused, or could not be done; the output says what.",
    ExitStatus.USAGE: "A name or an option is wrong.",
    ExitStatus.NO_DAEMON: "No daemon answers, or this user, who is not root, may not ask it.",
}
"""What the exit status of each command means, for its help."""


class Command(click.Command):
    """A command with further sections in its help.

    Args:
        examples: Command lines, without the name of the program.
    """

    meanings: Mapping[int, str] = MEANINGS

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own
        examples: Sequence[str] = (),
        **attributes: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **attributes)
        self.examples: Final = tuple(f"{NAME} {example}" for example in examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; for an unknown option only the nearest one is suggested."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            from difflib import get_close_matches  # noqa: PLC0415 - only an error needs it

            near = get_close_matches(exc.option_name, exc.possibilities or (), n=1)
            raise click.NoSuchOption(exc.option_name, exc.message, near, exc.ctx) from exc

    def get_short_help_str(self, limit: int = _UNLIMITED) -> str:  # noqa: ARG002 - click's own
        """Return the first sentence, whole."""
        return super().get_short_help_str(_UNLIMITED)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        if any(isinstance(one, click.Option) and one.hidden for one in self.params):
            formatter.write_paragraph()
            formatter.write_text(f"The options of `{NAME} serve` are accepted as well.")
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:  # a command that is wrapped cannot be pasted
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(status)), text) for status, text in self.meanings.items()])
        super().format_epilog(ctx, formatter)


class CommandGroup(Command, click.Group):
    """A group of such commands."""

    def first_sentence(self, name: str) -> str:
        """Return the first sentence of a subcommand's help."""
        return self.commands[name].get_short_help_str(_UNLIMITED)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options and the commands; `Command` would write the options only."""
        click.Group.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their first sentences, over several lines if they are long."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.first_sentence(name)) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self.first_sentence(name)) for name in names]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
