# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Why the kernel did not execute a file."""

import os
import sys
from pathlib import Path

import pytest

from cni_invoker.execution.answer import find_obstacle


def test_an_executable_file_has_no_obstacle(tmp_path: Path) -> None:
    """A program of this host, and a script with an existing interpreter, have none."""
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable} -I\n")
    assert find_obstacle(Path(sys.executable)) is None
    assert find_obstacle(script) is None
    script.write_text("#! /usr/bin/env -S A=1 sh -e\n")
    assert find_obstacle(script) is None


@pytest.mark.parametrize(
    ("machine", "order", "name"),
    [(183, "little", "aarch64"), (62, "little", "x86_64"), (22, "big", "s390x"), (9999, "little", "ELF machine 9999")],
)
def test_a_program_for_another_architecture(tmp_path: Path, machine: int, order: str, name: str) -> None:
    """The obstacle names the architecture of the program and that of the host."""
    program = tmp_path / "program"
    program.write_bytes(
        b"\x7fELF\x02"
        + (b"\x01" if order == "little" else b"\x02")
        + bytes(12)
        + machine.to_bytes(2, "little" if order == "little" else "big")
        + bytes(44)
    )
    here = os.uname().machine
    obstacle = f"built for another architecture than this host's, {here}"
    assert find_obstacle(program) == (None if name == here else obstacle)


@pytest.mark.parametrize(
    ("content", "obstacle"),
    [
        ("#!/nowhere/python3 -I\n", "its interpreter /nowhere/python3 is missing"),
        ("#!/usr/bin/env no-such-interpreter\n", "its interpreter no-such-interpreter is not in PATH"),
        ("#!\n", "a script without the name of its interpreter after '#!'"),
        ("", "neither a program (ELF) nor a script that names its interpreter ('#!…')"),
        ("echo\n", "neither a program (ELF) nor a script that names its interpreter ('#!…')"),
        ("\x7fELF", "neither a program (ELF) nor a script that names its interpreter ('#!…')"),
    ],
)
def test_a_file_that_is_not_executable_by_the_kernel(tmp_path: Path, content: str, obstacle: str) -> None:
    """The obstacle of a script is its interpreter; any other file is not a program."""
    file = tmp_path / "file"
    file.write_text(content)
    assert find_obstacle(file) == obstacle


def test_an_unreadable_file_has_no_known_obstacle(tmp_path: Path) -> None:
    """`find_obstacle` returns None for a file that does not exist."""
    assert find_obstacle(tmp_path / "gone") is None
