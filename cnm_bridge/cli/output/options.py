# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options `--format`, `--no-trunc` and `--watch` of commands that show something."""

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Final

import click

from cnm_bridge.cli.exit_status import ExitStatus
from cnm_bridge.errors import BadOption

__all__ = ["shows"]

_WATCH_S: Final = 2.0


def shows(command: Callable[..., tuple[object, ExitStatus]]) -> Callable[..., ExitStatus]:
    """Return a command's function that prints what `command` returns, with the options for that.

    Args:
        command: Returns what it shows (`Shown`), and the exit status. With `--watch` it is called again and again.
    """

    @click.option(
        "--format",
        "fmt",
        metavar="FORMAT",
        default="table",
        show_default=True,
        help="table, json, or a template for each row, such as '{{.Id}} {{json .Addresses}}'.",
    )
    @click.option("--json", "fmt", flag_value="json", help="Short for --format json.")
    @click.option("--no-trunc", is_flag=True, help="Show IDs in full length, and cut off nothing.")
    @click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
    @wraps(command)
    def run(*args: object, fmt: str, no_trunc: bool, watch: bool, **own: object) -> ExitStatus:
        from cnm_bridge.cli.output.shown import Shown, parse_format, render  # noqa: PLC0415 - slow, would delay `serve`

        status = ExitStatus.FINE
        try:
            chosen = parse_format(fmt)  # before anything is done
            while True:
                shown, status = command(*args, **own)
                assert isinstance(shown, Shown)  # noqa: S101
                if watch and sys.stdout.isatty():
                    click.clear()
                render(shown, chosen, no_trunc=no_trunc)
                if not watch:
                    return status
                time.sleep(_WATCH_S)
        except BadOption as exc:
            raise click.UsageError(str(exc)) from exc
        except KeyboardInterrupt:  # the end of --watch
            return status

    return run
