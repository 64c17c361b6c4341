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
        ("test", ("--outside", "--busybox", "--json")),
        ("explain", ("--option", "--json")),
    ],
)
def test_only_own_options_are_shown(command: str, own: Sequence[str]) -> None:
    """The daemon's settings are options too, and the help says where they are described."""
    text = CliRunner().invoke(main, [command, "--help"]).output
    options, settings = text.split("Settings:")
    for name in own:
        assert f"{name} " in options
    assert "--log-level" not in text
    assert "serve --help" in " ".join(settings.split())
