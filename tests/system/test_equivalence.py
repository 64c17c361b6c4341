# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container has what its plugins made: the same list, run directly in a namespace, gives the expected state."""

import re
from collections.abc import Callable

import pytest

from tests.lab import Plugins, known_plugins
from tests.system.equivalence import assert_equivalent, run_directly
from tests.system.namespace_view import View, view_beside_link
from tests.system.plugin_lists import (
    LISTS,
    commands,
    commands_beside_link,
    dual,
    simple,
    write_chained,
    write_wrapper,
)
from tests.system.scene import Scene, Subnet

SMOKE = {"bridge all chained", "ptp IPv6-only", "wrapper"}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.smoke] * (kind in SMOKE)) for kind in LISTS])
@pytest.mark.representatives("bridge all chained", "ptp IPv6-only", "macvlan", "wrapper")
def test_a_container_equals_a_namespace_with_the_same_list(
    scene: Scene, cni_plugins: Plugins | None, kind: str
) -> None:
    """Addresses, routes, rules, neighbours, sysctls, flags and the link's end on the host are equal."""
    chosen = LISTS[kind]
    plugins = cni_plugins or known_plugins()[0]
    if plugins.version < chosen.since:
        pytest.skip(f"plugins {plugins.name} cannot run this list; {'.'.join(map(str, chosen.since))} or newer can")
    subnet = scene.subnet()
    write_wrapper(scene, commands(subnet))
    name = scene.configure(chosen.plugins(subnet), cni_version=chosen.cni_version)
    wanted = run_directly(scene.lab, name, chosen.capability_args)
    assert_equivalent(scene.lab, scene.run(scene.network(name), *chosen.options), wanted)


@pytest.mark.usefixtures("sandbox_before_join")
@pytest.mark.parametrize("kind", ["bridge", "ptp", "macvlan"])
@pytest.mark.parametrize("mode", ["hybrid", "direct"])
@pytest.mark.representatives("hybrid-bridge")
def test_what_a_plugin_makes_beside_the_link(scene: Scene, mode: str, kind: str) -> None:
    """Where plugins run in the sandbox, it has all that they made: nothing is moved, so nothing is lost."""
    wanted = _compare_chained(scene, mode, kind, commands_beside_link)
    assert all(wanted[kind] for kind in ("nftables rules", "routes without a link", "next hops", "traffic classes"))


@pytest.mark.usefixtures("sandbox_before_join")
@pytest.mark.parametrize("mode", ["hybrid", "direct"])
@pytest.mark.representatives("direct")
def test_what_a_plugin_makes_on_the_link(scene: Scene, mode: str) -> None:
    """Docker adds the default route again, and changes nothing else; mode *hybrid* allows no further addresses."""
    _compare_chained(scene, mode, "bridge", commands if mode == "direct" else _commands_without_addresses)


def _commands_without_addresses(subnet: Subnet) -> str:
    lines = (line for line in commands(subnet).splitlines() if not line.startswith("ip address "))
    return "\n".join(re.sub(r" src \S+$", "", line) for line in lines)


def _compare_chained(scene: Scene, mode: str, kind: str, make: Callable[[Subnet], str]) -> View:
    """Run a list with a plugin that runs commands at its end; return what a namespace has then."""
    subnet = scene.subnet()
    write_chained(scene, make(subnet), "chained")
    main = dual(subnet, kind=kind) if kind != "macvlan" else simple(subnet, kind=kind)
    name = scene.configure([main, {"type": "chained"}])
    wanted = run_directly(scene.lab, name, further=view_beside_link)
    container = scene.run(scene.network(name, mode=mode))
    assert_equivalent(scene.lab, container, wanted, further=view_beside_link)
    return wanted
