# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge network`: what it does not do, `docker network` does."""

import pytest
from click.testing import CliRunner

from cnm_bridge.operator.cli.main import main


@pytest.mark.parametrize(
    ("subcommand", "hint"),
    [("rm", "docker network rm"), ("ls", "cni-bridge ls --networks"), ("inspect", "docker network inspect")],
)
def test_a_subcommand_of_docker_has_a_hint(subcommand: str, hint: str) -> None:
    """The error says what to use instead."""
    result = CliRunner().invoke(main, ["network", subcommand, "blue"])
    assert (result.exit_code, f"No such command {subcommand!r}" in result.output, hint in result.output) == (
        2,
        True,
        True,
    )


def test_another_subcommand_is_unknown() -> None:
    """As of any other command."""
    result = CliRunner().invoke(main, ["network", "xyzzy"])
    assert (result.exit_code, "No such command 'xyzzy'" in result.output) == (2, True)
