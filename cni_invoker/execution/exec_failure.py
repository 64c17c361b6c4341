# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Explains why the kernel did not execute a file; nothing is executed here.

It only explains a failure: with binfmt_misc a program for another architecture runs.
"""

import os
from pathlib import Path
from typing import Final

__all__ = ["find_obstacle"]

_HEAD_BYTES: Final = 256
"""How much of a script the kernel reads to find its interpreter (BINPRM_BUF_SIZE)."""

_MACHINES: Final = {
    3: "i386",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
"""Names of ELF's `e_machine`, as in `uname -m`."""


def find_obstacle(path: Path) -> str | None:
    """Return why the kernel would not execute a file, None if no reason is found.

    The reasons that it finds: a program for another architecture, a script whose interpreter is missing, and a file
    that is neither a program nor a script.
    """
    try:
        with path.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        with Path("/proc/self/exe").open("rb") as opened:
            own = opened.read(_HEAD_BYTES)
    except OSError:  # a file may be executable but not readable
        return None
    if head.startswith(b"#!"):
        return _script_obstacle(head)
    machine = _elf_machine(head)
    if machine is None:
        return "neither a program (ELF) nor a script that names its interpreter ('#!…')"
    here = _elf_machine(own)
    if machine != here:
        return f"built for {_MACHINES.get(machine, f'ELF machine {machine}')}, this host is {os.uname().machine}"
    return None


def _elf_machine(head: bytes) -> int | None:
    """Return `e_machine` of an ELF header (elf(5)), None if it is not an ELF header."""
    if len(head) < 20 or not head.startswith(b"\x7fELF"):  # noqa: PLR2004  # the field's end
        return None
    return int.from_bytes(head[18:20], "big" if head[5] == 2 else "little")  # noqa: PLR2004  # ELFDATA2MSB


def _script_obstacle(head: bytes) -> str | None:
    line = head.partition(b"\n")[0].removeprefix(b"#!").strip()
    words = os.fsdecode(line).split()
    if not words:
        return "a script without the name of its interpreter after '#!'"
    interpreter, *arguments = words
    if not os.access(interpreter, os.X_OK):
        return f"its interpreter {interpreter} is missing"
    if Path(interpreter).name == "env":
        program = next((word for word in arguments if not word.startswith("-") and "=" not in word), None)
        if program is not None and not any(os.access(Path(place, program), os.X_OK) for place in os.get_exec_path()):
            return f"its interpreter {program} is not in PATH"
    return None
