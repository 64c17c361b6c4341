# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fixtures for the tests of plugin chains."""

from pathlib import Path

import pytest

from cni_invoker import Runtime
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import LIMITS, RESULT


@pytest.fixture
def plugins(tmp_path: Path) -> FakePlugins:
    """Three fake plugins: one prints a result, one passes prevResult on, one adds DNS."""
    fakes = FakePlugins(tmp_path / "bin")
    fakes.install("first", ADD={"result": RESULT})
    fakes.install("second", ADD={"passthrough": True})
    fakes.install("third", ADD={"inject_dns": {"nameservers": ["1.2.3.4"]}})
    return fakes


@pytest.fixture
def runtime(plugins: FakePlugins) -> Runtime:
    """A runtime that finds these plugins."""
    return Runtime([plugins.directory], LIMITS)
