# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fixtures: a plugin that a test writes, and an IPAM plugin beside it."""

from pathlib import Path

import pytest

from extras.cni_plugin.tests.unit.written_plugin import ADDRESS, WrittenPlugin
from tests.plugins import FakePlugins

__all__ = ["execute", "fakes"]


@pytest.fixture
def fakes(tmp_path: Path) -> FakePlugins:
    """A directory for plugins with an IPAM plugin, `addresses`."""
    fakes = FakePlugins(tmp_path / "bin")
    fakes.install("addresses", ADD={"result": {"cniVersion": "1.1.0", **ADDRESS}})
    return fakes


@pytest.fixture
def execute(fakes: FakePlugins) -> WrittenPlugin:
    """A plugin beside them, as it is executed by a runtime."""
    return WrittenPlugin(fakes.directory)
