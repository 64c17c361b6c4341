# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""On a terminal, tables are as wide as it is; colours and cutting off can be switched off."""

import os
import pty
import re
import subprocess
import sys
from typing import Final

import pytest

SHOW: Final = """
import sys
from cnm_bridge.operator.cli.output.shown import Shown, Table, render
row = {"id": "77" * 32, "phase": "deleting", "what": "a text of many words " * 4}
columns = (("ID", "id"), ("PHASE", "phase"), ("WHAT", "what"))
render(Shown(document={}, rows=[row], parts=[Table(columns=columns, rows=[row])]), "table", no_trunc="full" in sys.argv)
"""


def printed(*arguments: str, **env: str) -> str:
    """Return what is printed on a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM", "COLUMNS"}}
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, *arguments],
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "60", **env},
        stdout=theirs,
    ) as process:
        os.close(theirs)
        found = bytearray()
        try:
            while part := os.read(ours, 4096):
                found += part
        except OSError:  # the end of a terminal (EIO)
            pass
        os.close(ours)
    assert process.returncode == 0
    return found.decode()


def test_a_table_has_the_width_of_the_terminal() -> None:
    """Long texts are wrapped, IDs shortened."""
    lines = re.sub(r"\x1b\[\d*m", "", printed(NO_COLOR="1")).splitlines()
    assert len(lines) > 2
    assert max(len(line.rstrip()) for line in lines) <= 60
    assert lines[1].split()[:2] == ["777777777777", "deleting"]


def test_nothing_is_cut_off() -> None:
    """With --no-trunc."""
    assert "77" * 32 in printed("full", NO_COLOR="1")


@pytest.mark.parametrize(("env", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours(env: dict[str, str], has_colours: bool) -> None:
    """What needs attention is coloured, unless NO_COLOR is set."""
    assert ("\x1b[31m" in printed(**env)) is has_colours
