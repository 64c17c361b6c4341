# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names that the templates of a command may have: in its help, and checked before it does anything."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import cleandoc
from typing import TypeVar

import click

from cnm_bridge.core.errors import BadOption
from cnm_bridge.operator.cli.output.shown import parse_format
from cnm_bridge.operator.cli.output.template import Template

__all__ = ["templates_have"]

R = TypeVar("R")


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
    try:
        chosen = parse_format(fmt)
        if isinstance(chosen, Template):
            chosen.refuse_unknown([dict.fromkeys(fields)])
    except BadOption as exc:
        raise click.UsageError(str(exc)) from exc
