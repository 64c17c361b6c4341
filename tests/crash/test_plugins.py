# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""SIGKILL of a plugin during ADD and DEL: the error names it, and in the end nothing is left behind.

The real plugins are killed after increasing times, from before their first effect to after their last one; in smaller
steps with CNI_BRIDGE_CRASH=full.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, as_object, get_object, get_str, parse_json
from tests.crash.endpoint import Endpoint
from tests.crash.extent import FULL
from tests.crash.host import Host
from tests.crash.lists import LISTS, SINGLE_STACK
from tests.lab import Lab, LabState, wait_until

_PLUGINS: Final = "/usr/lib/cni"
_MORTAL: Final = """#!/bin/sh
# The real plugin, killed after the time in /run/crash/VERB, if that file exists.
read -r seconds <"/run/crash/$CNI_COMMAND" 2>/dev/null || exec {real}
exec timeout --signal=KILL "$seconds" {real}
"""
_DIES_ONCE: Final = """#!/bin/sh
[ "$CNI_COMMAND" = DEL ] && rm /run/crash/once 2>/dev/null || exec {real}
nsenter --net="$CNI_NETNS" ip link del "$CNI_IFNAME"
kill -KILL $$
"""
_DIES_BETWEEN: Final = """#!/bin/sh
[ "$CNI_COMMAND" = DEL ] && rm /run/crash/once 2>/dev/null || exec {real}
rule=$(iptables-save -t nat | grep -e "-A POSTROUTING .*$CNI_CONTAINERID" | sed "s/^-A/-D/")
chain=${{rule##* }}
eval "iptables -t nat $rule"
iptables -t nat -F "$chain"
iptables -t nat -X "$chain"
nsenter --net="$CNI_NETNS" ip link del "$CNI_IFNAME"
kill -KILL $$
"""
_NEVER_WRITES: Final = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && rm /run/crash/once 2>/dev/null || exec {real}
: >/var/lib/cni/networks/crash/10.81.0.99
kill -KILL $$
"""
_OFTEN: Final = ("--reconcile-interval", "1")
"""An address that `host-local` never wrote is free again after the next round."""
_FAILED: Final = "endpoint.teardown_pending"
_DONE: Final = "endpoint.torn_down"
_VICTIMS: Final = [(kind, str(plugin["type"])) for kind, plugins in LISTS.items() for plugin in plugins]
_STEPS_MS: Final = range(1, 60, 3 if FULL else 15)


@pytest.mark.parametrize(("kind", "victim"), _VICTIMS)
@pytest.mark.parametrize("verb", ["ADD", "DEL"])
def test_a_plugin_killed_at_any_time(lab: Lab, kind: str, victim: str, verb: str) -> None:
    """Whenever a plugin is killed, the error names it, and everything is undone."""
    lab.write(f"/opt/cni/bin/{victim}", _MORTAL.format(real=f"{_PLUGINS}/{victim}"), mode=0o755)
    died = 0
    with Host(lab, LISTS[kind], options=_OFTEN) as host:
        for seconds in _increasing_times():
            before = lab.state()
            died += _try(host, verb, victim, seconds)
            _assert_clean(host, before, f"{victim} killed {seconds} s after the start of {verb}")
        assert host.endpoint_ids() == (host.neighbour.id,)
    assert died, "it was never killed before it ended"


def test_an_address_that_was_never_written(lab: Lab) -> None:
    """`host-local` was killed between making the file of its reservation and writing the container's ID into it."""
    lab.write("/opt/cni/bin/host-local", _NEVER_WRITES.format(real=f"{_PLUGINS}/host-local"), mode=0o755)
    with Host(lab, LISTS["ptp"], options=_OFTEN) as host:
        before = lab.state()
        lab.write("/run/crash/once", "")
        _assert_names_killed(get_str(host.endpoint().create() or {}, "Err"), "ptp")
        _assert_clean(host, before, "host-local killed before it wrote")


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("death", [_DIES_ONCE, _DIES_BETWEEN], ids=["its link deleted", "between two addresses"])
def test_a_plugin_killed_during_del_completes_it_in_the_same_attempt(lab: Lab, kind: str, death: str) -> None:
    """The repeated DEL finds the link and the rules that the killed one had removed already."""
    plugin = str(LISTS[kind][0]["type"])
    lab.write(f"/opt/cni/bin/{plugin}", death.format(real=f"{_PLUGINS}/{plugin}"), mode=0o755)
    with Host(lab, LISTS[kind]) as host:
        before = lab.state()
        endpoint = host.endpoint()
        assert get_object(endpoint.create() or {}, "Interface")
        lab.write("/run/crash/once", "")
        assert endpoint.delete() == {}
        host.wait_gone(endpoint)
        assert _FAILED not in {entry["event"] for entry in _entries(host, endpoint)}, "it took a second attempt"
        assert not lab.path("/run/crash/once").exists()
        _assert_clean(host, before, f"{plugin} killed once in DEL")


@pytest.mark.parametrize("kind", [*LISTS, "one address"])
@pytest.mark.parametrize("death", [_DIES_ONCE, _DIES_BETWEEN], ids=["its link deleted", "between two addresses"])
def test_a_plugin_killed_during_del_without_a_stored_result(lab: Lab, kind: str, death: str) -> None:
    """Only the link has the addresses, and DEL deletes it first: the repeated DEL still removes every rule."""
    plugins = LISTS.get(kind, SINGLE_STACK)
    plugin = str(plugins[0]["type"])
    lab.write(f"/opt/cni/bin/{plugin}", death.format(real=f"{_PLUGINS}/{plugin}"), mode=0o755)
    with Host(lab, plugins) as host:
        before = lab.state()
        counted = host.endpoint()
        host.arm(0)
        assert get_object(counted.create() or {}, "Interface")
        boundary = 1 + host.disarm().index(f"end of {plugin} ADD")
        assert counted.delete() == {}
        host.wait_gone(counted)
        host.arm(boundary)
        assert host.endpoint().create() is None
        host.wait_dead()
        host.disarm()
        lab.write("/run/crash/once", "")
        host.start()
        assert not lab.path("/run/crash/once").exists()
        _assert_clean(host, before, f"{plugin} killed once in DEL")


def _try(host: Host, verb: str, victim: str, seconds: str) -> bool:
    """Create and delete an endpoint whose plugin is to be killed; return whether it was."""
    order = f"/run/crash/{verb}"
    endpoint = host.endpoint()
    if verb == "ADD":
        host.lab.write(order, f"{seconds}\n")
    created = endpoint.create() or {}
    host.lab.remove(order)
    if "Err" in created:
        assert verb == "ADD"
        _assert_names_killed(get_str(created, "Err"), victim)
        return True
    assert get_object(created, "Interface")
    if verb == "DEL":
        host.lab.write(order, f"{seconds}\n")
    assert endpoint.delete() == {}
    wait_until(lambda: bool({_FAILED, _DONE} & {entry["event"] for entry in _entries(host, endpoint)}), "an attempt")
    host.lab.remove(order)
    errors = [get_str(entry, "error") for entry in _entries(host, endpoint) if entry["event"] == _FAILED]
    for error in errors:
        _assert_names_killed(error, victim)
    return bool(errors)


def _entries(host: Host, endpoint: Endpoint) -> list[JsonObject]:
    """Return what the daemon has logged about an endpoint."""
    assert host.lab.daemon is not None
    lines, _, _ = host.lab.daemon.log().rpartition("\n")
    parsed = [as_object(parse_json(line.encode()), "a line of the log") for line in lines.splitlines()]
    return [entry for entry in parsed if entry.get("endpoint_id") == endpoint.id]


def _assert_names_killed(error: str, victim: str) -> None:
    assert f'"{victim}"' in error
    assert "signal" in error.lower() or "kill" in error.lower(), error


def _increasing_times() -> Iterator[str]:
    return (f"{step / 1000:.3f}" for step in _STEPS_MS)


def _assert_clean(host: Host, before: LabState, what: str) -> None:
    daemon = host.lab.daemon
    host.assert_clean(before, f"{what}; {daemon.tail(2) if daemon else None}")
