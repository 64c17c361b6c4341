# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fixtures for the tests of the cached runtime and of the command."""

from pathlib import Path

import pytest

from extras.cni_tool.tests.unit.cached_scene import Scene
from extras.cni_tool.tests.unit.command_host import Host

__all__ = ["host", "scene"]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two plugins, a cache, and a runtime that uses both."""
    return Scene(tmp_path)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host on which the command runs."""
    return Host(tmp_path)
