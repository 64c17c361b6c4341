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
from cnm_bridge.operator.cli.output import Shown, Table, render
row = {"id": "77" * 32, "phase": "deleting", "what": "a text of many words and must-not-break " * 4}
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


def test_a_table_has_the_width_of_the_terminal() -> None:
    """Long texts are wrapped, IDs shortened."""
    lines = re.sub(r"\x1b\[\d*m", "", printed(NO_COLOR="1")).splitlines()
    assert len(lines) > 2
    assert max(len(line.rstrip()) for line in lines) <= 60
    assert lines[1].split()[:2] == ["777777777777", "deleting"]


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
    """With --no-trunc; a table that is too wide becomes a record for each row."""
    shown = printed("full", "narrow", NO_COLOR="1")
    assert "77" * 32 in shown
    assert "with-a-long-tag" in shown
    assert "without" not in shown
    assert [line.split()[0] for line in shown.splitlines()] == ["ID", "PHASE", "WHAT", "IMAGE", "MAC"]


def test_columns_that_do_not_fit() -> None:
    """They are left out, as few as possible, and named; the others are not broken within a word."""
    lines = re.sub(r"\x1b\[\d*m", "", printed("narrow", NO_COLOR="1")).splitlines()
    assert lines[0].split() == ["ID", "PHASE", "WHAT", "MAC"]
    assert max(len(line.rstrip()) for line in lines) <= 60
    assert "02:00:00:00:00:01" in lines[1]
    assert any("must-not-break" in line for line in lines)
    assert lines[-1] == "without IMAGE: --no-trunc shows all columns"


@pytest.mark.parametrize(("env", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours(env: dict[str, str], has_colours: bool) -> None:
    """What needs attention is coloured, unless NO_COLOR is set."""
    assert ("\x1b[31m" in printed(**env)) is has_colours


NAMES: Final = """
from cnm_bridge.operator.cli.output import Shown, Table, render
name = "a-name-of-more-letters-than-fit"
row = {"id": "77" * 32, "name": name, "addresses": "10.23.0.2/16 fd23::2/64", "mode": "move"}
columns = (("ENDPOINT", "id"), ("NAME", "name"), ("ADDRESSES", "addresses"), ("MODE", "mode"))
render(Shown(document={}, parts=[Table(columns=columns, rows=[row])]), as_json=False, no_trunc=False)
"""


@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_only_names_are_shortened(width: str) -> None:
    """IDs, addresses and headings are whole at any width."""
    lines = re.sub(r"\x1b\[\d*m", "", printed(program=NAMES, NO_COLOR="1", COLUMNS=width)).splitlines()
    assert lines[0].split() == ["ENDPOINT", "NAME", "ADDRESSES", "MODE"]
    words = " ".join(lines[1:]).split()
    assert {"777777777777", "10.23.0.2/16", "fd23::2/64", "move"} <= set(words)
    (name,) = (word for word in words if word.startswith("a-name"))
    assert name == "a-name-of-more-letters-than-fit" if width != "60" else name.endswith("…")
    assert max(map(len, lines)) <= int(width)
