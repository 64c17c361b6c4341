# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python packaging/man_pages.py DATE`: writes the manual pages of the commands into packaging/man."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click_man.core import generate_man_page

from cni_egress.command import main as cni_egress
from cni_ipam_etcd.commands import commands as cni_ipam_etcd
from cni_tool.command import commands as cni_invoker
from cnm_bridge import __version__
from cnm_bridge.operator.cli.command import MEANINGS, Command
from cnm_bridge.operator.cli.main import main as cni_bridge

TARGET = Path(__file__).parent / "man"
WHOLE = 1 << 16
UNFILLED = re.compile(r"^\x08\n(.*?)(?=^\.)", re.DOTALL | re.MULTILINE)
"""A paragraph whose lines click keeps apart, which click-man passes on with its mark."""


def main(date: str) -> None:
    """Write one page for each command and subcommand, in place of those that were there."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    named = {
        "cni-bridge": cni_bridge,
        "cni-egress": cni_egress,
        "cni-invoker": cni_invoker,
        "cni-ipam-etcd": cni_ipam_etcd,
    }
    for name, command in named.items():
        for context in contexts(click.Context(command, info_name=name)):
            page = context.command_path.replace(" ", "-")
            (TARGET / f"{page}.1").write_text(render(context, date), "utf-8")


def contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command and of all below it."""
    yield context
    for name, command in getattr(context.command, "commands", {}).items():
        yield from contexts(click.Context(command, info_name=name, parent=context))


def render(context: click.Context, date: str) -> str:
    """Return the page of a command: click-man's, with whole sentences and the further sections."""
    command = context.command
    for one in (command, *getattr(command, "commands", {}).values()):
        one.short_help = one.get_short_help_str(WHOLE)  # click-man cuts others
    page = UNFILLED.sub(r".nf\n\1.fi\n", generate_man_page(context, version=__version__, date=date))
    return page + "".join(f"{line}\n" for line in further_sections(context))


def further_sections(context: click.Context) -> Iterator[str]:
    """Yield the lines of the sections that click does not have."""
    command = context.command
    related = [] if context.parent is None else [context.parent.command_path]
    if isinstance(command, Command):
        yield ".SH EXAMPLES"
        yield ".nf"
        yield from (escape(example) for example in command.examples)
        yield ".fi"
        yield ".SH EXIT STATUS"
        for status, text in MEANINGS.items():
            yield from (".TP", str(int(status)), escape(text))
    for paragraph in command.epilog.split("\n\n") if command.epilog else ():
        title, _, text = paragraph.partition(": ")
        yield from (f".SH {title.upper()}", escape(text))
    yield ".SH SEE ALSO"
    yield ",\n".join(f".BR {escape(name.replace(' ', '-'))} (1)" for name in related) or "https://www.cni.dev"


def escape(text: str) -> str:
    """Return a text as roff shows it literally."""
    text = text.replace("\\", "\\\\").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    main(sys.argv[1])
