# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A command that reads the daemon's settings, and can read them again while it runs."""

import os
from typing import Any, Final

import click

from cnm_bridge.core.errors import Refused

__all__ = ["SettingsCommand", "read_again"]

_ARGUMENTS_KEY: Final = "cnm_bridge.arguments"


class _UnusableSettings(click.UsageError):
    exit_code = os.EX_CONFIG


class SettingsCommand(click.Command):
    """A command that can read its settings again, and exits with its own status if they are invalid."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse and remember the arguments; turn an error into one whose exit status says that a retry is useless."""
        ctx.meta[_ARGUMENTS_KEY] = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            raise _UnusableSettings(exc.format_message(), exc.ctx) from exc


def read_again(context: click.Context) -> dict[str, Any]:
    """Return the current values of the options of a running `SettingsCommand`, by parameter.

    The command line does not change; environment and file are read again.

    Raises:
        Refused: A value is invalid; the text names it and its source.
    """
    try:
        return context.command.make_context(context.info_name, list(context.meta[_ARGUMENTS_KEY])).params
    except click.ClickException as exc:
        raise Refused(exc.format_message()) from exc
