# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The same list, run straight into a namespace and by Docker into a container: what differs."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from spec import JsonObject
from tests.lab import Container, Lab, LabError
from tests.lab.waiting import wait_until
from tests.system.namespace_view import View, view, view_other_end

__all__ = ["assert_settled", "straight", "without", "without_defaults"]

STRAIGHT: Final = "straight"
"""Name of the namespace that the plugins work in without Docker."""


def straight(lab: Lab, name: str, capability_args: JsonObject | None = None) -> View:
    """Run a list into a namespace, look at what is there, and take it away again."""
    env = {"CNI_PATH": "/opt/cni/bin:/usr/lib/cni", "CAP_ARGS": json.dumps(capability_args or {})}
    netns = f"/run/netns/{STRAIGHT}"
    lab.run("ip", "netns", "add", STRAIGHT)
    try:
        lab.run("ip", "-n", STRAIGHT, "link", "set", "lo", "up")
        lab.run(sys.executable, "-m", "cni_invoker", "add", name, netns, env=env)
        try:
            return _view(lab, lambda *argv: lab.run("ip", "netns", "exec", STRAIGHT, *argv).stdout, "eth0")
        finally:
            lab.run(sys.executable, "-m", "cni_invoker", "del", name, netns, env=env)
    finally:
        lab.run("ip", "netns", "delete", STRAIGHT)


def assert_settled(lab: Lab, container: Container, wanted: View, ifname: str = "eth0") -> None:
    """Wait until the container has what the list makes straight; before Engine 28 that takes a moment."""
    differences = ["not looked at yet"]

    def is_settled() -> bool:
        found = _view(lab, lambda *argv: container.in_network(*argv).stdout, ifname)
        differences[:] = [f"{kind}: {_difference(found[kind], wanted[kind])}" for kind in wanted]
        differences[:] = [text for text in differences if not text.endswith(": ")]
        return not differences

    try:
        wait_until(is_settled, "a settled container")
    except LabError:
        pytest.fail("the container is not what the plugins made:\n" + "\n".join(differences))


def without(wanted: View, *kinds: str) -> View:
    """Give a view without the kinds of things that others may have changed."""
    return {kind: things for kind, things in wanted.items() if kind not in kinds}


def without_defaults(wanted: View) -> View:
    """Give what a container has of a list whose network is not its way out: no default routes in the main table."""
    routes = wanted["routes"]
    assert isinstance(routes, list)
    return {**wanted, "routes": [route for route in routes if not route.startswith("main dst=default ")]}


def _view(lab: Lab, run: Callable[..., str], ifname: str) -> View:
    return {**view(run, ifname), **view_other_end(run, lambda *argv: lab.run(*argv).stdout, ifname)}


def _difference(found: object, wanted: object) -> str:
    if found == wanted:
        return ""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        keys = (key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
        return "; ".join(f"{key} is {found.get(key)}, not {wanted.get(key)}" for key in keys)
    if isinstance(found, Sequence) and isinstance(wanted, Sequence) and not isinstance(found, str):
        return f"too much {[x for x in found if x not in wanted]}, too little {[x for x in wanted if x not in found]}"
    return f"{found}, not {wanted}"
