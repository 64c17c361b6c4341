# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each command documents its exit status."""

from collections.abc import Iterator

import click
import pytest

from cnm_bridge.operator.cli.main import main


def leaves(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands that are no groups."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


@pytest.mark.parametrize(("path", "command"), [*leaves(main, "cni-bridge")])
def test_the_help_has_the_exit_status(path: str, command: click.Command) -> None:
    """In a sentence of the same form."""
    assert "The exit status is " in " ".join((command.help or "").split()), path
