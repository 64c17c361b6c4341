# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugins set up is what the container has: the same list, run straight into a namespace, says what."""

import pytest

from tests.lab import Plugins, known_plugins
from tests.system.equivalence import assert_settled, straight
from tests.system.plugin_lists import LISTS, commands, write_wrapper
from tests.system.scene import Scene

SMOKE = {"bridge all chained", "ptp IPv6-only", "wrapper"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.smoke] * (kind in SMOKE)) for kind in LISTS])
def test_the_container_has_what_the_plugins_made(scene: Scene, cni_plugins: Plugins | None, kind: str) -> None:
    """Addresses, routes, rules, neighbours, settings, qdiscs and flags, and the other end on the host."""
    chosen = LISTS[kind]
    plugins = cni_plugins or known_plugins()[0]
    if plugins.version < chosen.since:
        pytest.skip(f"plugins {plugins.name} cannot: {'.'.join(map(str, chosen.since))} is the first that can")
    subnet = scene.subnet()
    write_wrapper(scene, commands(subnet))
    name = scene.configure(chosen.plugins(subnet), cni_version=chosen.cni_version)
    wanted = straight(scene.lab, name, chosen.capability_args)
    assert_settled(scene.lab, scene.run(scene.network(name), *chosen.options), wanted)
