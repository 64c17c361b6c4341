# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command, run as scripts run cnitool. Its plugins are fakes, so it needs no root."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, parse_json
from cni_tool.command import commands
from cni_tool.forms import container_id
from extras.cni_tool.tests.unit.command_host import ID, LIMIT_S, NETNS, RESULT, Host
from tests.unit.cni_invoker.processes import is_alive


def test_add_check_and_del(host: Host) -> None:
    """They use cnitool's container IDs and cache; the result alone is printed, formatted as by Go."""
    printed = host.do("add", "blue", NETNS)
    assert printed == json.dumps(RESULT, indent=4) + "\n"
    file = host.cache / "results" / f"blue-{ID}-eth0"
    assert parse_json(file.read_bytes())
    assert host.do("check", "blue", NETNS) == ""
    assert host.do("del", "blue", NETNS) == ""
    assert host.do("del", "blue", NETNS) == ""
    assert not file.exists()
    assert host.verbs == ["ADD", "CHECK", "DEL", "DEL"]
    for command in host.commands:
        assert command.environment["CNI_CONTAINERID"] == ID
        assert command.environment["CNI_NETNS"] == NETNS
        assert command.environment["CNI_IFNAME"] == "eth0"
        assert command.environment["CNI_PATH"] == str(host.plugins.directory)


def test_a_result_is_printed_unchanged(host: Host) -> None:
    """Decimals keep their digits, a whole number is an integer, and each value has its own line."""
    host.plugins.install("first", ADD={"stdout": '{"cniVersion": "1.1.0", "ips": [], "rate": 1.5, "count": 1e3}'})
    assert host.do("add", "blue", NETNS).splitlines()[-3:] == ['    "rate": 1.5,', '    "count": 1000', "}"]


def test_the_environment_reaches_the_plugins(host: Host) -> None:
    """All variables of cnitool are used; `-i` wins over CNI_IFNAME."""
    variables = {"CNI_IFNAME": "net1", "CNI_ARGS": "A=1;B=2", "CAP_ARGS": '{"mac": "02::", "ips": []}'}
    host.do("add", "blue", NETNS, **variables)
    host.do("add", "-i", "net2", "blue", NETNS, **variables)
    first, second = host.commands
    assert (first.environment["CNI_IFNAME"], second.environment["CNI_IFNAME"]) == ("net1", "net2")
    assert first.environment["CNI_ARGS"] == "A=1;B=2"
    assert first.stdin["runtimeConfig"] == {"mac": "02::"}


def test_del_needs_no_environment(host: Host) -> None:
    """The inputs of ADD, configuration included, are cached."""
    host.do("add", "blue", NETNS, CNI_ARGS="A=1", CAP_ARGS='{"mac": "02::"}')
    (host.configurations / "10-blue.conflist").unlink()
    host.do("del", "blue", NETNS)
    assert host.commands[-1].environment["CNI_ARGS"] == "A=1"
    assert host.commands[-1].stdin["runtimeConfig"] == {"mac": "02::"}
    error, _ = host.fail("del", "blue", NETNS)
    assert error["code"] == 7


def test_the_error_of_a_plugin_is_printed(host: Host) -> None:
    """Code and message are the plugin's; the details, and standard error, name the plugin."""
    failure: JsonObject = {"error": {"code": 100, "msg": "banana", "details": "peel"}, "stderr": "out of bananas\n"}
    host.plugins.install("first", ADD=failure)
    error, text = host.fail("add", "blue", NETNS)
    assert (error["cniVersion"], error["code"], error["msg"]) == ("1.1.0", 100, "banana")
    assert str(error["details"]).startswith('plugin type="first" failed (add): banana; peel')
    assert "first: out of bananas\n" in text
    assert text.endswith(f"{error['details']}\n")
    assert host.verbs == ["ADD", "DEL"]


def test_standard_error_of_plugins_is_shown(host: Host) -> None:
    """As in libcni, standard error of a plugin that succeeds is shown too."""
    host.plugins.install("first", ADD={"result": RESULT, "stderr": "slipping\n"})
    assert host.run("add", "blue", NETNS).stderr == "first: slipping\n"


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "words"),
    [
        (("add", "red", NETNS), {}, 7, 'no net configuration with name "red"'),
        (("add", "blue", NETNS), {"CAP_ARGS": "{"}, 4, "CAP_ARGS"),
        (("add", "blue", NETNS), {"CNI_ARGS": "A"}, 4, "CNI_ARGS"),
        (("add", "blue"), {}, 4, "NETNS"),
        (("ad", "blue", NETNS), {}, 4, "No such command"),
        (("add", "blue", NETNS), {"CNI_PATH": "/nowhere"}, 999, 'failed to find plugin "first" in path [/nowhere]'),
        (("check", "blue", NETNS), {"CNI_IFNAME": "a/b"}, 4, "interface name"),
        (("gc", "blue", "--valid", "nonsense"), {}, 4, "ID/IFNAME"),
        (("status", "red"), {}, 7, "red"),
    ],
)
def test_every_error_is_a_cni_error(
    host: Host, arguments: tuple[str, ...], variables: dict[str, str], code: int, words: str
) -> None:
    """The error is printed as JSON on standard output and as text on standard error; the exit status is 1."""
    error, text = host.fail(*arguments, **variables)
    assert error["code"] == code
    assert words in str(error["msg"])
    assert words in text
    assert host.verbs == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_add_kills_the_plugin(host: Host, number: signal.Signals) -> None:
    """The attachment stays cached with what its DEL needs."""
    host.plugins.install("first", ADD={"sleep_s": 60})
    with host.running("add", "blue", NETNS) as adding:
        host.wait_for("ADD")
        adding.send_signal(number)
        output, text = adding.communicate(timeout=LIMIT_S)
    assert (adding.returncode, output) == (1, "")
    assert "needs a del" in text
    with pytest.raises(ProcessLookupError):
        os.kill(host.commands[0].pid, 0)
    host.plugins.install("first")
    host.do("del", "blue", NETNS)
    assert host.verbs == ["ADD", "DEL"]


def test_status_needs_no_netns(host: Host) -> None:
    """Cnitool requires one; here it is optional."""
    host.plugins.install("first", VERSION={"supportedVersions": ["1.0.0", "1.1.0"]})
    for arguments in (("blue",), ("blue", NETNS)):
        assert host.do("status", *arguments) == ""
    host.plugins.install("first", VERSION={"supportedVersions": ["1.0.0"]})
    error, _ = host.fail("status", "blue")
    assert error["code"] == 1
    host.configurations.joinpath("20-red.conflist").write_text(
        json.dumps({"cniVersions": ["1.0.0", "1.1.0"], "name": "red", "plugins": [{"type": "first"}]})
    )
    assert host.do("status", "red") == ""  # the version is negotiated, as for ADD
    host.plugins.install("first", STATUS={"error": {"code": 50, "msg": "not yet"}})
    error, _ = host.fail("status", "blue")
    assert (error["code"], error["msg"]) == (50, "not yet")


def test_an_ignored_signal_stays_ignored(host: Host) -> None:
    """Under `nohup`, SIGHUP does not interrupt the command."""
    host.plugins.install("first", ADD={"sleep_s": 1, "result": RESULT})
    with host.running("add", "blue", NETNS, ignoring="HUP") as adding:
        host.wait_for("ADD")
        adding.send_signal(signal.SIGHUP)
        output, _ = adding.communicate(timeout=LIMIT_S)
        assert (adding.returncode, json.loads(output)["ips"]) == (0, RESULT["ips"])


def test_an_inherited_sigchld_disposition_is_reset(host: Host) -> None:
    """If the parent ignores SIGCHLD, the kernel would discard the exit status of plugins."""
    ignoring = "import os, sys; from signal import *; signal(SIGCHLD, SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", ignoring, *host.command("add", "blue", NETNS)]
    done = subprocess.run(command, env=host.environment(), stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    assert parse_json(done.stdout) == RESULT


def test_warnings_are_sentences(host: Host) -> None:
    """Log events of the package are printed as text for the operator."""
    host.configure("10-blue.conflist", {"type": "first"}, {"type": "last"})
    host.plugins.install("last", ADD={"error": {"code": 999, "msg": "banana"}}, DEL={"error": {"code": 9, "msg": "no"}})
    _, text = host.fail("add", "blue", NETNS)
    assert "plugin last did not undo its ADD, but the other plugins have run: plugin type=" in text
    assert "plugin.delete_failed" not in text
    host.cache.joinpath("results", f"blue-{ID}-eth0").write_text("garbage")
    done = host.run("del", "blue", NETNS)
    assert f"the cached attachment in {host.cache}/results/blue-{ID}-eth0 is not used: " in done.stderr


def test_the_version_of_the_command_is_printed(host: Host) -> None:
    """`--version` prints the version of the command and the supported CNI versions."""
    assert re.fullmatch(r"cni-invoker \d+\.\d+\.\S+, CNI 0\.1\.0 to 1\.1\.0\n", host.do("--version"))


def test_validate_prints_the_report(host: Host) -> None:
    """The exit status is 1 if the list cannot be used; no plugin runs but for VERSION."""
    assert f"  ok       first                {host.plugins.directory}/first" in host.do("validate", "blue")
    host.configure("20-red.conflist", {"type": "first"}, {"type": "gone"}, name="red")
    done = host.run("validate", "red")
    assert done.returncode == 1
    assert "  PROBLEM  gone" in done.stdout
    assert host.verbs == []


def test_list_prints_used_shadowed_and_broken_files(host: Host) -> None:
    """`list` prints which files are used, which are shadowed by others, and which are broken."""
    used = host.configurations / "10-blue.conflist"
    hidden = host.configure("20-blue.conflist", {"type": "first"})
    broken = host.configurations / "30-red.conflist"
    broken.write_text('{\n "name": }')
    lines = host.do("list").splitlines()
    assert lines[0] == f"blue             {used}  (CNI 1.1.0: first)"
    assert lines[1] == f"  shadowed       {hidden}"
    assert lines[2].startswith(f"broken           error parsing configuration list: {broken}, line 2, column 10:")
    assert "no net configurations found in /nowhere" in host.do("list", NETCONFPATH="/nowhere")


DOCUMENT = (Path(__file__).parents[4] / "docs" / "cni-invoker.md").read_text("utf-8")


def test_the_documentation_names_every_command() -> None:
    """Each command and variable has a row in a table."""
    shown = subprocess.check_output([sys.executable, "-m", "cni_tool", "--help"], text=True, timeout=LIMIT_S)
    listed = re.findall(r"^  (\w+)  ", shown.partition("Commands:")[2], re.MULTILINE)
    assert set(listed) == {*("add", "attachments", "check", "del", "gc", "list", "status", "validate")}
    variables = re.findall(r"^  ([A-Z_]+)  .*?(?:\[(.*)\])?$", shown, re.MULTILINE)
    assert len(variables) == 5
    for command in listed:
        assert re.search(rf"^\| `{command}\b", DOCUMENT, re.MULTILINE)
    for variable, default in variables:
        assert re.search(rf"^\| `{variable}` *\| {f'`{default}`' if default else ''} *\|", DOCUMENT, re.MULTILINE)


def test_delete_kills_the_plugin_of_a_killed_add(host: Host, tmp_path: Path) -> None:
    """The plugin survives the command that started it; it must not complete its ADD during or after DEL."""
    netns = str(tmp_path / "netns")  # unique to this test
    host.plugins.install("first", ADD={"wait_for": str(tmp_path / "go-on"), "result": RESULT})
    with subprocess.Popen(host.command("add", "blue", netns), env=host.environment()) as adding:
        host.wait_for("ADD")
        adding.kill()
    orphan = next(command.pid for command in host.plugins.commands if command.verb == "ADD")
    assert is_alive(orphan)
    done = host.run("del", "blue", netns)
    assert done.returncode == 0
    assert not is_alive(orphan)
    assert f"killed processes that were left behind for {container_id(netns)}: {orphan}\n" in done.stderr
    assert host.names("results") == []


def test_each_command_has_an_example() -> None:
    """Its help has a command line that can be parsed."""
    for name, command in commands.commands.items():
        (example,) = re.findall(r"^Examples: cni-invoker (.*)$", command.epilog or "", re.MULTILINE)
        given, *rest = shlex.split(example)
        assert given == name
        command.make_context(name, rest)
