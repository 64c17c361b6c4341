# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The help of commands that take all settings of the daemon."""

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from cnm_bridge.operator.cli.main import main


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("doctor", ("--quick", "--no-trunc", "--json")),
        ("test", ("--outside", "--json")),
        ("explain", ("--option", "--json")),
    ],
)
def test_only_own_options_are_shown(command: str, own: Sequence[str]) -> None:
    """The daemon's settings are options too, and hidden."""
    text = CliRunner().invoke(main, [command, "--help"]).output
    for name in own:
        assert f"{name} " in text
    assert "--log-level" not in text
