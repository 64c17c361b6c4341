# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins written with `cni_plugin`, executed as a runtime does; for IPAM see `test_ipam.py`."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cni_invoker.documents.versions import SUPPORTED_VERSIONS
from extras.cni_plugin.tests.unit.written_plugin import ADDRESS, CONFIG, IMPORTS, Answer, WrittenPlugin

ROOT = Path(__file__).parents[4]
ADD = f"def add(call): return {ADDRESS}\n"
RUN = IMPORTS + ADD + "Plugin(add=add).run()"


def test_version(execute: WrittenPlugin) -> None:
    """The answer has the version of the question, or the newest without one, and all supported versions."""
    answer = execute(RUN, "VERSION", {"cniVersion": "0.4.0"})
    assert answer.document == {"cniVersion": "0.4.0", "supportedVersions": list(SUPPORTED_VERSIONS)}
    assert execute(RUN, "VERSION", b"").document["cniVersion"] == "1.1.0"
    limited = execute(f"{IMPORTS}{ADD}Plugin(add=add, versions=['0.4.0', '1.0.0']).run()", "VERSION", b"")
    assert limited.document == {"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}


def test_starting_loads_little() -> None:
    """Starting costs little more than Python itself: no asyncio, no subprocess, no results."""
    heavy = "{'asyncio', 'subprocess', 'dataclasses', 'inspect', 'logging', 'pathlib', 'cni_invoker.documents.results'}"
    # Bare, because an editable installation imports some of them itself.
    paths = [str(ROOT), str(ROOT / "extras/cni_plugin/src")]
    modules = f"import sys; sys.path[:0] = {paths}\nimport cni_plugin\n"
    code = f"{modules}print(sorted({heavy} & {{*sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("version", "ips"),
    [
        ("0.3.1", {"ips": [{"version": "4", "address": "10.1.0.9/24"}]}),
        ("0.4.0", {"ips": [{"version": "4", "address": "10.1.0.9/24"}]}),
        ("1.0.0", ADDRESS),
        ("1.1.0", ADDRESS),
        ("0.2.0", {"ip4": {"ip": "10.1.0.9/24"}}),
        (None, {"ip4": {"ip": "10.1.0.9/24"}}),
    ],
)
def test_the_result_has_the_version_of_the_configuration(
    execute: WrittenPlugin, version: str | None, ips: Mapping[str, object]
) -> None:
    """The function writes it in the newest form; the runtime gets the form that it has asked for."""
    answer = execute(RUN, "ADD", {**CONFIG, "cniVersion": version})
    assert (answer.status, answer.document) == (0, {"cniVersion": version or "0.1.0", **ips})


def test_a_chained_plugin_passes_the_result_on(execute: WrittenPlugin) -> None:
    """Without a result of its own it prints the one before it, or an empty one."""
    program = f"{IMPORTS}Plugin(add=lambda call: None).run()"
    previous = {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.1.0.9/24"}], "routes": []}
    assert execute(program, "ADD", {**CONFIG, "cniVersion": "0.4.0", "prevResult": previous}).document == previous
    assert execute(program, "ADD").document == {"cniVersion": "1.1.0"}


def test_the_call(execute: WrittenPlugin) -> None:
    """Everything that the runtime has sent is there, typed."""
    program = f"""{IMPORTS}
def add(call):
    seen = [call.verb, call.container_id, call.netns, call.ifname, call.name, call.cni_version, call.args["IP"],
            call.runtime_config["mac"], call.config["type"], str(call.prev_result.ips[0].address.ip)]
    raise CallError(120, "seen", " ".join(seen))
Plugin(add=add).run()"""
    config = {**CONFIG, "runtimeConfig": {"mac": "c2:11:22:33:44:55"}, "prevResult": ADDRESS}
    answer = execute(program, "ADD", config, CNI_ARGS="IgnoreUnknown=1;IP=10.1.0.7")
    assert answer.document["details"] == (
        "ADD c1 /run/netns/c1 eth0 blue 1.1.0 10.1.0.7 c2:11:22:33:44:55 ours 10.1.0.9"
    )


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("ADD", ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
        ("CHECK", ["CNI_NETNS"]),
        ("DEL", ["CNI_CONTAINERID", "CNI_IFNAME"]),
    ],
)
def test_missing_variables(execute: WrittenPlugin, command: str, missing: list[str]) -> None:
    """The error names all of them."""
    code, msg = execute(RUN, command, CONFIG, **dict.fromkeys(missing)).error
    assert (code, msg) == (4, f"required env variables [{','.join(missing)}] missing; {command} needs them")


def test_del_needs_no_namespace(execute: WrittenPlugin) -> None:
    """It may be gone; and nothing is printed."""
    assert execute(RUN, "DEL", CNI_NETNS=None) == Answer(0, "", "")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CNI_CONTAINERID", "../c1"), ("CNI_IFNAME", "a/b"), ("CNI_IFNAME", "x" * 16), ("CNI_NETNS", "/run/\udcff")],
)
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_invalid_variables(execute: WrittenPlugin, command: str, variable: str, value: str) -> None:
    """They are refused before a function runs, and the error names the variable."""
    code, msg = execute(RUN, command, CONFIG, **{variable: value}).error
    assert code == 4
    assert msg.startswith(f"{variable}: invalid ")


@pytest.mark.parametrize("args", ["novalue", "=x", "a=b;c"])
def test_invalid_arguments(execute: WrittenPlugin, args: str) -> None:
    """A plugin that reads CNI_ARGS does not have to understand malformed ones."""
    code, msg = execute(f"{IMPORTS}Plugin(add=lambda call: call.args and None).run()", "ADD", CNI_ARGS=args).error
    assert code == 4
    assert msg.startswith("CNI_ARGS: invalid CNI argument")


@pytest.mark.parametrize("command", ["", "add", "UPDATE"])
def test_unknown_commands(execute: WrittenPlugin, command: str) -> None:
    """They are an error of the environment."""
    assert execute(RUN, command).error == (4, f"unknown CNI_COMMAND: {command}")


def test_about(execute: WrittenPlugin) -> None:
    """Someone who starts the plugin by hand sees what it is, not on standard output."""
    answer = execute(f"{IMPORTS}{ADD}Plugin(add=add, versions=['1.0.0']).run('ours 1.2')", "", CNI_COMMAND=None)
    assert answer == Answer(0, "", "ours 1.2\nCNI versions: 1.0.0\n")


@pytest.mark.parametrize(
    ("command", "stdin", "code", "msg"),
    [
        ("ADD", b"{", 6, "line 1, column 2"),
        ("ADD", b"[]", 6, "must be an object"),
        ("ADD", b"", 6, "standard input"),
        ("ADD", {"cniVersion": 1, "name": "blue"}, 6, "cniVersion must be a string"),
        ("ADD", {"cniVersion": "1.0.0"}, 7, "name is missing"),
        ("ADD", {**CONFIG, "name": "a/b"}, 7, "invalid network name"),
        ("ADD", {**CONFIG, "ipam": []}, 7, "ipam must be an object"),
        ("ADD", {**CONFIG, "prevResult": {"ips": 1}}, 6, "ips"),
        ("ADD", {**CONFIG, "cniVersion": "9.0.0"}, 1, "incompatible CNI versions"),
        ("CHECK", {**CONFIG, "cniVersion": "0.3.1"}, 1, "config version does not allow CHECK"),
        ("GC", {**CONFIG, "cniVersion": "1.0.0"}, 1, "config version does not allow GC"),
        ("STATUS", {**CONFIG, "cniVersion": "1.0.0"}, 1, "config version does not allow STATUS"),
        ("CHECK", CONFIG, 7, "prevResult is missing"),
    ],
)
def test_bad_configurations(
    execute: WrittenPlugin, command: str, stdin: Mapping[str, object] | bytes, code: int, msg: str
) -> None:
    """Each has the code of the specification, in the version of the configuration."""
    answer = execute(f"{IMPORTS}Plugin(add=lambda call: call.prev_result).run()", command, stdin)
    assert answer.error[0] == code
    assert msg in answer.error[1]
    version = stdin.get("cniVersion") if isinstance(stdin, dict) else None
    assert answer.document["cniVersion"] == (version if isinstance(version, str) else "0.1.0")


def test_errors_of_the_function(execute: WrittenPlugin) -> None:
    """An error of CNI is the answer."""
    program = f"{IMPORTS}def add(call): raise CallError(ErrorCode.TRY_AGAIN_LATER, 'later', 'all are in use')\n"
    answer = execute(f"{program}Plugin(add=add).run()", "ADD", {**CONFIG, "cniVersion": "1.0.0"})
    expected = {"cniVersion": "1.0.0", "code": 11, "msg": "later", "details": "all are in use"}
    assert (answer.status, answer.document, answer.stderr) == (1, expected, "")


@pytest.mark.parametrize(
    ("statement", "msg"),
    [("raise KeyError('color')", "KeyError: 'color'"), ("import sys; sys.exit(0)", "SystemExit: 0")],
)
def test_unexpected_errors(execute: WrittenPlugin, statement: str, msg: str) -> None:
    """They are internal errors; standard error has the traceback."""
    answer = execute(f"{IMPORTS}def add(call): {statement}\nPlugin(add=add).run()", "ADD")
    assert answer.error == (999, msg)
    assert "Traceback" in answer.stderr


def test_an_invalid_result(execute: WrittenPlugin) -> None:
    """The plugin's author learns what is wrong with it."""
    answer = execute(f"{IMPORTS}Plugin(add=lambda call: {{'ips': [{{'address': 'here'}}]}}).run()", "ADD")
    code, msg = answer.error
    assert code == 999
    assert msg.startswith("this plugin made an invalid result: 'here' is not an address")


def test_standard_output_has_the_answer_only(execute: WrittenPlugin) -> None:
    """Whatever the function and its children print goes to standard error."""
    program = f"{IMPORTS}import os\ndef add(call):\n  print('mine')\n  os.system('echo child')\nPlugin(add=add).run()"
    answer = execute(program, "ADD")
    assert answer.stdout == '{"cniVersion":"1.1.0"}\n'
    assert {*answer.stderr.split()} == {"mine", "child"}


@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_the_namespace_of_the_plugin(execute: WrittenPlugin, command: str) -> None:
    """It is refused with skel's code and words, before anything happens, unless a variable allows it."""
    own = "/proc/self/ns/net"
    program = f"{IMPORTS}def work(call): raise CallError(120, 'it ran')\nPlugin(add=work, delete=work).run()"
    code, msg = execute(program, command, CNI_NETNS=own).error
    assert (code, msg.partition(";")[0]) == (
        8,
        "plugin's netns and netns from CNI_NETNS should not be the same",
    )
    for allowed in ("1", "true"):
        assert execute(program, command, CNI_NETNS=own, CNI_NETNS_OVERRIDE=allowed).error == (120, "it ran")
    assert execute(program, command, CNI_NETNS="/nowhere").error == (120, "it ran")


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_gc_knows_the_valid_attachments(execute: WrittenPlugin, key: str) -> None:
    """They are typed. Without them nothing may be removed, so that is an error."""
    program = f"""{IMPORTS}
def gc(call): raise CallError(120, "/".join(f"{{one.container_id}}/{{one.ifname}}" for one in call.valid_attachments))
Plugin(add=lambda call: None, gc=gc).run()"""
    config = {**CONFIG, key: [{"containerID": "c1", "ifname": "eth0"}]}
    assert execute(program, "GC", config).error == (120, "c1/eth0")
    assert execute(program, "GC", {**CONFIG, key: []}).error == (120, "")
    assert execute(program, "GC", {**CONFIG, key: None}).error == (120, "")  # Go's empty list, which CRI-O sends
    assert execute(program, "GC", {**CONFIG, key: [{"containerID": 1}]}).error[0] == 7
    assert execute(program, "GC").error == (7, "cni.dev/valid-attachments is missing")
