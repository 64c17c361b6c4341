# SPDX-License-Identifier: Apache-2.0
"""Prints texts of a command; the only place that does, apart from tables."""

import click


def echo(text: object, *, err: bool = False) -> None:
    """Print a text and a line break, on standard error with `err`. Other control characters are escaped."""
    click.echo(printable(str(text), keep="\n\t"), err=err)


def printable(text: str, keep: str = "") -> str:
    r"""Return a text without characters that a terminal obeys, or that hide others: `\n` stands for a line break.

    Args:
        text: The text, such as a name or a message of a plugin.
        keep: Characters that stay as they are, such as line breaks.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escape(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
