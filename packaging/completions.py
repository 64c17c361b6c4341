# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python packaging/completions.py`: writes the completions of the commands for bash, zsh and fish.

They go into packaging/completions; in each shell's directory they have the names by which the shell finds them.
"""

import shutil
from pathlib import Path

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

TARGET = Path(__file__).parent / "completions"
COMMANDS = ("cni-bridge", "cni-egress", "cni-invoker", "cni-ipam-etcd")
SHELLS = ((BashComplete, "{}"), (ZshComplete, "_{}"), (FishComplete, "{}.fish"))


def main() -> None:
    """Write one file for each command and shell, in place of those that were there."""
    shutil.rmtree(TARGET, ignore_errors=True)
    for shell, file in SHELLS:
        directory = TARGET / shell.name
        directory.mkdir(parents=True)
        for name in COMMANDS:
            variable = f"_{name.replace('-', '_')}_COMPLETE".upper()
            # What a shell reads only asks the command; it needs none of its options.
            text = shell(click.Command(name), {}, name, variable).source()
            directory.joinpath(file.format(name)).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
