# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The same list, run directly in a namespace and by Docker in a container: how the results differ."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Container, Lab, LabError
from tests.lab.waiting import wait_until
from tests.system.namespace_view import View, view, view_other_end

Look = Callable[[Callable[..., str], str], View]
"""Reads something of a namespace: takes what runs a command in it, and the link's name."""

NAMESPACE: Final = "direct"
"""The namespace in which the plugins run without Docker."""


def run_directly(lab: Lab, name: str, capability_args: JsonObject | None = None, further: Look | None = None) -> View:
    """Run ADD of a list in a namespace, return what the namespace has then, and run DEL."""
    env = {"CNI_PATH": "/opt/cni/bin:/usr/lib/cni", "CAP_ARGS": json.dumps(capability_args or {})}
    netns = f"/run/netns/{NAMESPACE}"
    lab.run("ip", "netns", "add", NAMESPACE)
    try:
        lab.run("ip", "-n", NAMESPACE, "link", "set", "lo", "up")
        lab.run(sys.executable, "-m", "cni_tool", "add", name, netns, env=env)
        try:
            return _view(lab, lambda *argv: lab.run("ip", "netns", "exec", NAMESPACE, *argv).stdout, "eth0", further)
        finally:
            lab.run(sys.executable, "-m", "cni_tool", "del", name, netns, env=env)
    finally:
        lab.run("ip", "netns", "delete", NAMESPACE)


def assert_equivalent(
    lab: Lab, container: Container, wanted: View, ifname: str = "eth0", further: Look | None = None
) -> None:
    """Wait until the container has what the list makes directly; before Engine 28 that takes a moment."""
    differences = ["not read yet"]

    def is_equivalent() -> bool:
        found = _view(lab, lambda *argv: container.in_network(*argv).stdout, ifname, further)
        differences[:] = [f"{kind}: {_difference(found[kind], wanted[kind])}" for kind in wanted]
        differences[:] = [text for text in differences if not text.endswith(": ")]
        return not differences

    try:
        wait_until(is_equivalent, "the container has what the plugins made")
    except LabError:
        pytest.fail("the container does not have what the plugins made:\n" + "\n".join(differences))


def without(wanted: View, *kinds: str) -> View:
    """Return a view without some kinds of things, which other networks may have changed."""
    return {kind: things for kind, things in wanted.items() if kind not in kinds}


def without_defaults(wanted: View) -> View:
    """Return the view of a network that is not the container's gateway: no default routes in the main table."""
    routes = wanted["routes"]
    assert isinstance(routes, list)
    return {**wanted, "routes": [route for route in routes if not route.startswith("main dst=default ")]}


def _view(lab: Lab, run: Callable[..., str], ifname: str, further: Look | None) -> View:
    found = {**view(run, ifname), **view_other_end(run, lambda *argv: lab.run(*argv).stdout, ifname)}
    return {**found, **(further(run, ifname) if further else {})}


def _difference(found: object, wanted: object) -> str:
    if found == wanted:
        return ""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        keys = (key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
        return "; ".join(f"{key} is {found.get(key)}, not {wanted.get(key)}" for key in keys)
    if isinstance(found, Sequence) and isinstance(wanted, Sequence) and not isinstance(found, str):
        return f"unexpected {[x for x in found if x not in wanted]}, missing {[x for x in wanted if x not in found]}"
    return f"{found}, not {wanted}"
