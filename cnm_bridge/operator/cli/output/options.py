# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options `--format`, `--no-trunc` and `--watch` of commands that show something, and the names for templates."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import cleandoc
from typing import Final, TypeVar

import click

from cnm_bridge.core.errors import BadOption
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.shown import Shown, parse_format, render
from cnm_bridge.operator.cli.output.template import Template

_WATCH_S: Final = 2.0

_Command = Callable[..., tuple[Shown, ExitStatus]]

R = TypeVar("R")


def shows(command: _Command) -> Callable[..., ExitStatus]:
    """Return a command's function that prints what `command` returns, with the options for that, and with `--watch`.

    Args:
        command: Returns what it shows, and the exit status. With `--watch` it is called again and again.
    """

    @_with_output
    @click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
    @wraps(command)
    def run(*args: object, fmt: str, no_trunc: bool, watch: bool, **own: object) -> ExitStatus:
        with _malformed_is_usage():
            status = _show(command, args, own, fmt, no_trunc=no_trunc)
            try:
                while watch:
                    time.sleep(_WATCH_S)
                    status = _show(command, args, own, fmt, no_trunc=no_trunc, is_again=True)
            except KeyboardInterrupt:
                pass
        return status

    return run


def shows_once(command: _Command) -> Callable[..., ExitStatus]:
    """As `shows`, without `--watch`."""

    @_with_output
    @wraps(command)
    def run(*args: object, fmt: str, no_trunc: bool, **own: object) -> ExitStatus:
        with _malformed_is_usage():
            return _show(command, args, own, fmt, no_trunc=no_trunc)

    return run


def with_formats(function: Callable[..., R]) -> Callable[..., R]:
    """Add the options `--format` and `--json`, for the parameter `fmt`."""
    for option in (
        click.option("--json", "fmt", flag_value="json", help="Short for --format json."),
        click.option(
            "--format",
            "fmt",
            metavar="FORMAT",
            default="table",
            show_default=True,
            help="table, json, or a template for each row, such as '{{.Id}} {{json .Addresses}}'.",
        ),
    ):
        function = option(function)
    return function


def _with_output(function: Callable[..., ExitStatus]) -> Callable[..., ExitStatus]:
    """Add the options of commands that show tables."""
    option = click.option("--no-trunc", is_flag=True, help="Show IDs in full length, and cut off nothing.")
    return with_formats(option(function))


@contextmanager
def _malformed_is_usage() -> Iterator[None]:
    """Turn a malformed format into click's error, which shows the usage and ends with exit status 2."""
    try:
        yield
    except BadOption as exc:
        raise click.UsageError(str(exc)) from exc


def _show(
    command: _Command,
    args: tuple[object, ...],
    own: dict[str, object],
    fmt: str,
    *,
    no_trunc: bool,
    is_again: bool = False,
) -> ExitStatus:
    """Run a command, and print what it shows; return its exit status."""
    chosen = parse_format(fmt)  # before anything is done
    shown, status = command(*args, **own)
    if is_again and sys.stdout.isatty():
        click.clear()
    render(shown, chosen, no_trunc=no_trunc)
    return status


def templates_have(*fields: str, **by_flag: Sequence[str]) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator that declares the names in a command's templates.

    A template with another name ends the command as a wrong option, before anything is done and also if there are no
    rows. The names are the last sentence of the command's help.

    Args:
        fields: The names. What is within a value is checked when the rows are known.
        by_flag: The names with a flag instead, by the flag's parameter.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def run(*args: object, fmt: str, **own: object) -> R:
            chosen = next((names for flag, names in by_flag.items() if own[flag]), fields)
            _check(fmt, chosen)
            return command(*args, fmt=fmt, **own)

        named = "; ".join((", ".join(fields), *(f"with --{flag} {', '.join(by_flag[flag])}" for flag in by_flag)))
        run.__doc__ = f"{cleandoc(command.__doc__ or '')}\n\nTemplates have {named}."
        return run

    return decorate


def _check(fmt: str, fields: Sequence[str]) -> None:
    with _malformed_is_usage():
        chosen = parse_format(fmt)
        if isinstance(chosen, Template):
            chosen.refuse_unknown([dict.fromkeys(fields)])
