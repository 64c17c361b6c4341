# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Errors whose kind is known end with the next command."""

from pathlib import Path

import pytest

from cni_invoker.errors import ConfigurationNotFound, PluginNotFound
from cnm_bridge.core.errors import next_step


def without_lists(*known: str) -> ConfigurationNotFound:
    """Return the error about a list that is not there, beside lists of these names."""
    return ConfigurationNotFound("blue", known=known, directories=[Path("/etc/cni/net.d")], problems=[])


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (PluginNotFound(plugin="bridge", directories=[Path("/opt/cni/bin")]), "`cni-bridge doctor`"),
        (without_lists(), "`cni-bridge network create NAME --subnet"),
        (without_lists("red"), ""),
        (ValueError("anything else"), ""),
    ],
)
def test_the_next_command(error: Exception, command: str) -> None:
    """It depends on words of the runtime and of plugins."""
    assert next_step(str(error)).startswith(command)
    assert bool(next_step(str(error))) is bool(command)
