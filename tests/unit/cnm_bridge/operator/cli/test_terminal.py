# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""On a terminal that is too narrow, tables have fewer columns; --no-trunc shows all."""

import os
import pty
import subprocess
import sys
from typing import Final

SHOW: Final = """
import sys
from cnm_bridge.operator.cli.output import Shown, Table, render
row = {"id": "77" * 32, "phase": "deleting", "what": "a text of words"}
columns = (("ID", "id"), ("PHASE", "phase"), ("WHAT", "what"))
if "narrow" in sys.argv:
    row |= {"mac": "02:00:00:00:00:01", "image": "registry.example.org/busybox:1.37.0-with-a-long-tag"}
    columns += (("IMAGE", "image"), ("MAC", "mac"))
parts = [Table(columns=columns, rows=[row], optional=("image", "mac"))]
render(Shown(document={}, parts=parts), as_json=False, no_trunc="full" in sys.argv)
"""


LONG: Final = """
from cnm_bridge.operator.cli.output import Shown, render
render(Shown(document={}, parts=["docker network create " * 5]), as_json=False, no_trunc=False)
"""


PROSE: Final = """
from cnm_bridge.operator.cli.output import Prose, Shown, render
lines = ["mode  " + "word " * 20, "fix: " + "docker run " * 9]
render(Shown(document={}, parts=[Prose(lines=lines, hang=6, commands=("fix: ",))]), as_json=False, no_trunc=False)
"""


def printed(*arguments: str, program: str = SHOW, **env: str) -> str:
    """Return what is printed on a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM", "COLUMNS"}}
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
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


def test_a_text_is_left_to_the_terminal() -> None:
    """A long command has no line ends, so that it can be copied."""
    assert "docker network create " * 5 in printed(program=LONG)


def test_prose_has_line_ends_between_words() -> None:
    """Further lines are indented; a line with a command is left as it is."""
    lines = printed(program=PROSE).splitlines()
    assert [line for line in lines if line.startswith("fix: ")] == ["fix: " + "docker run " * 9]
    assert lines[0].startswith("mode  word word")
    assert lines[1].startswith("      word")
    assert max(len(line) for line in lines if not line.startswith("fix: ")) <= 60


def test_nothing_is_cut_off() -> None:
    """With --no-trunc."""
    shown = printed("full", "narrow")
    assert "77" * 32 in shown
    assert "with-a-long-tag" in shown
    assert "without" not in shown
    assert shown.splitlines()[0].split() == ["ID", "PHASE", "WHAT", "IMAGE", "MAC"]


def test_columns_that_do_not_fit() -> None:
    """They are left out, as few as possible, and named; the others are whole."""
    lines = printed("narrow").splitlines()
    assert lines[0].split() == ["ID", "PHASE", "WHAT", "MAC"]
    assert lines[1].split("  ")[:3] == ["777777777777", "deleting", "a text of words"]
    assert "02:00:00:00:00:01" in lines[1]
    assert lines[-1] == "without IMAGE: --no-trunc shows all columns"
