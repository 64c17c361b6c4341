# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fixtures for the tests of plugin chains, of the cached runtime, and of the command."""

from pathlib import Path

import pytest

from cni_invoker import Runtime
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.cached_scene import Scene
from tests.unit.cni_invoker.runtime_scene import LIMITS, RESULT
from tests.unit.cni_invoker.tool_host import Host

__all__ = ["host", "plain", "plugins", "runtime", "scene"]


PLAIN = """#!/bin/sh
# Fails if two plugins work for one container at once; GC must run alone.
directory="${0%/*}"
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'; exit;;
  GC) held="$directory/held.gc";;
  *) held="$directory/held.$CNI_CONTAINERID";;
esac
mkdir "$held" || { echo '{"code":999,"msg":"two at once"}'; exit 1; }
[ "$CNI_COMMAND" != GC ] || for other in "$directory"/held.c*; do
  [ ! -d "$other" ] || { rmdir "$held"; echo '{"code":999,"msg":"not alone"}'; exit 1; }
done
echo "$CNI_COMMAND" >> "$directory/calls"
echo '{"cniVersion":"1.1.0"}'
rmdir "$held"
"""
"""A plugin without an interpreter of its own, so that a thousand executions take some seconds."""


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A directory with one fast plugin, which notices when it does not run alone."""
    plugin = tmp_path / "plain"
    plugin.write_text(PLAIN)
    plugin.chmod(0o755)
    return tmp_path


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
