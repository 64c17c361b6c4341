# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python packaging/man_pages.py DATE`: writes the manual pages of both commands into packaging/man."""

import re
import shutil
import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from cni_invoker.cli import tool
from cnm_bridge import __version__
from cnm_bridge.operator.cli.main import main as cni_bridge

TARGET = Path(__file__).parent / "man"
UNFILLED = re.compile(r"^\x08\n(.*?)(?=^\.)", re.DOTALL | re.MULTILINE)
"""A paragraph whose lines click keeps apart, which click-man passes on with its mark."""


def main(date: str) -> None:
    """Write one page for each command and subcommand, in place of those that were there."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    (cni_invoker,) = (member for member in vars(tool).values() if isinstance(member, click.Group))
    for name, command in (("cni-bridge", cni_bridge), ("cni-invoker", cni_invoker)):
        write_man_pages(name, command, version=__version__, target_dir=str(TARGET), date=date)
    for page in TARGET.iterdir():
        page.write_text(UNFILLED.sub(r".nf\n\1.fi\n", page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
