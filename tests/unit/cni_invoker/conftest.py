# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fixtures for the tests of plugin chains, of the cached runtime and of the command."""

from pathlib import Path

import pytest

from cni_invoker import Runtime
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.cached_scene import Scene
from tests.unit.cni_invoker.runtime_scene import LIMITS, RESULT
from tests.unit.cni_invoker.tool_host import Host

__all__ = ["host", "plugins", "runtime", "scene"]


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


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two plugins, a cache, and a runtime that uses both."""
    return Scene(tmp_path)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host on which the command runs."""
    return Host(tmp_path)
