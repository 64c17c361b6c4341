# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Prints texts of a command; the only place that does, apart from tables."""

import click

from cni_invoker.documents.printable import printable


def echo(text: object, *, err: bool = False) -> None:
    """Print a text and a line break, on standard error with `err`. Other control characters are escaped."""
    click.echo(printable(str(text), keep="\n\t"), err=err)
