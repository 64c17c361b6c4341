# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the tests of whole lists of plugins, and of the command, start from."""

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
    """Three fake plugins: one with a result, one that passes it on, one that adds DNS."""
    fakes = FakePlugins(tmp_path / "bin")
    fakes.install("first", ADD={"result": RESULT})
    fakes.install("second", ADD={"passthrough": True})
    fakes.install("third", ADD={"inject_dns": {"nameservers": ["1.2.3.4"]}})
    return fakes


@pytest.fixture
def runtime(plugins: FakePlugins) -> Runtime:
    """A runtime that finds them."""
    return Runtime([plugins.directory], LIMITS)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Plugins, a cache, and a runtime that has both."""
    return Scene(tmp_path)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host to run the command on."""
    return Host(tmp_path)
