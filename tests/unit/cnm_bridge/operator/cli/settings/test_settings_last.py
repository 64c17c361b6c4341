# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The help of commands that take all settings of the daemon."""

import pytest
from click.testing import CliRunner

from cnm_bridge.operator.cli.main import main


@pytest.mark.parametrize(("command", "own"), [("doctor", "--quick"), ("test", "--outside")])
def test_own_options_come_first(command: str, own: str) -> None:
    """A reader finds the command's own options before the daemon's settings."""
    text = CliRunner().invoke(main, [command, "--help"]).output
    options, settings = text.split("Settings, otherwise those of the running daemon:")
    for name in (own, "--format", "--json"):
        assert f"  {name}" in options
    assert "--cni-gc" not in options
    assert "--cni-gc" in settings
    assert "--config" in settings
