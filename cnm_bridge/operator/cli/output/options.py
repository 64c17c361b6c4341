# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options `--json` and `--no-trunc` of commands that show something."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import click

from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.shown import Shown, render

_Command = Callable[..., tuple[Shown, ExitStatus]]

R = TypeVar("R")


def shows(command: _Command) -> Callable[..., ExitStatus]:
    """Return a command's function that prints what `command` returns, with the options for that.

    Args:
        command: Returns what it shows, and the exit status.
    """

    @_with_output
    @wraps(command)
    def run(*args: object, as_json: bool, no_trunc: bool, **own: object) -> ExitStatus:
        shown, status = command(*args, **own)
        render(shown, as_json=as_json, no_trunc=no_trunc)
        return status

    return run


def with_json(function: Callable[..., R]) -> Callable[..., R]:
    """Add the option `--json`, for the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")(function)


def _with_output(function: Callable[..., ExitStatus]) -> Callable[..., ExitStatus]:
    """Add the options of commands that show tables."""
    option = click.option("--no-trunc", is_flag=True, help="Show IDs in full length, and cut off nothing.")
    return with_json(option(function))
