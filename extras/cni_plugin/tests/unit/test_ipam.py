# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins written with `cni_plugin` that run an IPAM plugin."""

import os
from collections.abc import Mapping

import pytest

from cni_bridge_spec import JsonObject
from extras.cni_plugin.tests.unit.written_plugin import ADDRESS, CONFIG, IMPORTS, Answer, WrittenPlugin
from tests.plugins import FakePlugins

EVERYTHING = f"""{IMPORTS}
def add(call):
    return {{**call.ipam_add().document, "interfaces": [{{"name": call.ifname, "sandbox": call.netns, "mtu": 1400}}]}}
Plugin(add=add).run()
"""
WITH_IPAM = {**CONFIG, "ipam": {"type": "addresses"}}


def test_ipam_assigns_addresses(execute: WrittenPlugin, fakes: FakePlugins) -> None:
    """The IPAM plugin is found in CNI_PATH and receives the same input and environment."""
    answer = execute(EVERYTHING, "ADD", WITH_IPAM, CNI_ARGS="IP=10.1.0.9")
    assert answer.document == {
        "cniVersion": "1.1.0",
        **ADDRESS,
        "interfaces": [{"name": "eth0", "sandbox": "/run/netns/c1", "mtu": 1400}],
    }
    (command,) = fakes.commands
    assert command.stdin == WITH_IPAM
    assert command.environment["CNI_CONTAINERID"] == "c1"
    assert command.environment["CNI_ARGS"] == "IP=10.1.0.9"


def test_a_failed_add_frees_the_addresses(execute: WrittenPlugin, fakes: FakePlugins) -> None:
    """The IPAM plugin's DEL runs after any later failure, one of the result included."""
    program = f"{IMPORTS}def add(call):\n  call.ipam_add()\n  raise ValueError('no link')\nPlugin(add=add).run()"
    assert execute(program, "ADD", WITH_IPAM).error == (999, "ValueError: no link")
    assert fakes.calls == (("addresses", "ADD"), ("addresses", "DEL"))


def test_a_failed_ipam_add(execute: WrittenPlugin, fakes: FakePlugins) -> None:
    """The error names the IPAM plugin. Its DEL does not run: the addresses may be those of a container in use."""
    fakes.install("addresses", ADD={"error": {"code": 100, "msg": "duplicate allocation", "details": "of c1"}})
    answer = execute(EVERYTHING, "ADD", WITH_IPAM)
    assert answer.error == (100, 'plugin type="addresses" failed (add): duplicate allocation')
    assert answer.document["details"] == "of c1"
    assert fakes.calls == (("addresses", "ADD"),)


def test_addresses_that_cannot_be_freed(execute: WrittenPlugin, fakes: FakePlugins) -> None:
    """The failure of the DEL does not hide the error."""
    fakes.install("addresses", ADD={"stdout": "{"}, DEL={"error": {"code": 101, "msg": "stuck"}})
    answer = execute(EVERYTHING, "ADD", WITH_IPAM)
    assert answer.error[0] == 6
    assert answer.document["details"] == "the addresses are not free: stuck"
    assert fakes.calls == (("addresses", "ADD"), ("addresses", "DEL"))


def test_a_repeated_add(execute: WrittenPlugin, fakes: FakePlugins) -> None:
    """A plugin that looks for its interface first leaves the addresses of the container alone."""
    program = f"{IMPORTS}def add(call):\n  call.require_no_interface()\n  return call.ipam_add()\nPlugin(add=add).run()"
    here = {"CNI_NETNS": "/proc/self/ns/net", "CNI_NETNS_OVERRIDE": "1", "CNI_IFNAME": "lo"}
    code, msg = execute(program, "ADD", WITH_IPAM, **here).error
    if os.geteuid():
        assert (code, msg[:10]) == (4, "CNI_NETNS:")
    else:
        assert (code, msg) == (999, "c1 already has an interface lo; DEL it first")
    assert fakes.calls == ()


def test_an_add_that_freed_its_addresses_itself(execute: WrittenPlugin, fakes: FakePlugins) -> None:
    """They are not freed twice."""
    program = (
        f"{IMPORTS}def add(call):\n  call.ipam_add()\n  call.ipam_delete()\n  raise ValueError\nPlugin(add=add).run()"
    )
    assert execute(program, "ADD", WITH_IPAM).error == (999, "ValueError: ")
    assert fakes.calls == (("addresses", "ADD"), ("addresses", "DEL"))


@pytest.mark.parametrize("printed", ["", "7", '{"ips": [{}]}', "{"])
def test_an_ipam_plugin_that_prints_no_result(execute: WrittenPlugin, fakes: FakePlugins, printed: str) -> None:
    """The error names the plugin that printed it, and its DEL runs."""
    fakes.install("addresses", ADD={"stdout": printed})
    code, msg = execute(EVERYTHING, "ADD", WITH_IPAM).error
    assert code == 6
    assert msg.startswith('plugin type="addresses" failed (add): bad CNI result: ')
    assert fakes.calls == (("addresses", "ADD"), ("addresses", "DEL"))


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
def test_verbs_without_a_function_are_passed_on(execute: WrittenPlugin, fakes: FakePlugins, command: str) -> None:
    """The IPAM plugin gets them, and its error is the plugin's; a configuration without IPAM makes them succeed."""
    config = {"prevResult": {"cniVersion": "1.1.0"}}
    failing: JsonObject = {"error": {"code": 50, "msg": "banana"}}
    fakes.install("addresses", **{command: failing})
    failed = f'plugin type="addresses" failed ({"delete" if command == "DEL" else command.lower()}): banana'
    assert execute(EVERYTHING, command, {**WITH_IPAM, **config}).error == (50, failed)
    assert fakes.calls == (("addresses", command),)
    assert execute(EVERYTHING, command, {**CONFIG, **config}) == Answer(0, "", "")


@pytest.mark.parametrize(
    ("config", "path", "code", "msg"),
    [
        (CONFIG, "/nowhere", 7, "ipam.type is missing"),
        (WITH_IPAM, "/nowhere", 999, 'failed to find plugin "addresses" in path [/nowhere]'),
        (WITH_IPAM, None, 4, "required env variables [CNI_PATH] missing; plugin addresses is searched there"),
    ],
)
def test_ipam_plugins_that_are_not_found(
    execute: WrittenPlugin, config: Mapping[str, object], path: str | None, code: int, msg: str
) -> None:
    """The error says what is missing."""
    answer = execute(EVERYTHING, "ADD", config, CNI_PATH=path)
    assert answer.error[0] == code
    assert answer.error[1].startswith(msg)
