# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command, run as scripts run cnitool; its plugins are fakes, so that it needs no root."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cni_invoker.cli.environment import container_id
from spec import JsonObject, as_object, parse_json
from tests.unit.cni_invoker.processes import is_alive
from tests.unit.cni_invoker.tool_host import ID, LIMIT_S, NETNS, RESULT, Host


def test_add_check_and_del(host: Host) -> None:
    """Each does what cnitool does, with its IDs and its cache; the result alone is printed, as Go prints it."""
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


def test_a_result_is_printed_as_it_is(host: Host) -> None:
    """Decimals keep their digits, a whole number is an integer, and each value has a line of its own."""
    host.plugins.install("first", ADD={"stdout": '{"cniVersion": "1.1.0", "ips": [], "rate": 1.10, "count": 1e3}'})
    assert host.do("add", "blue", NETNS).splitlines()[-3:] == ['    "rate": 1.10,', '    "count": 1000', "}"]


def test_the_environment(host: Host) -> None:
    """All that cnitool takes from there gets to the plugins; `-i` wins."""
    variables = {"CNI_IFNAME": "net1", "CNI_ARGS": "A=1;B=2", "CAP_ARGS": '{"mac": "02::", "ips": []}'}
    host.do("add", "blue", NETNS, **variables)
    host.do("add", "-i", "net2", "blue", NETNS, **variables)
    first, second = host.commands
    assert (first.environment["CNI_IFNAME"], second.environment["CNI_IFNAME"]) == ("net1", "net2")
    assert first.environment["CNI_ARGS"] == "A=1;B=2"
    assert first.stdin["runtimeConfig"] == {"mac": "02::"}


def test_del_needs_no_environment(host: Host) -> None:
    """What ADD was given is remembered, the configuration included."""
    host.do("add", "blue", NETNS, CNI_ARGS="A=1", CAP_ARGS='{"mac": "02::"}')
    (host.configurations / "10-blue.conflist").unlink()
    host.do("del", "blue", NETNS)
    assert host.commands[-1].environment["CNI_ARGS"] == "A=1"
    assert host.commands[-1].stdin["runtimeConfig"] == {"mac": "02::"}
    error, _ = host.fail("del", "blue", NETNS)
    assert error["code"] == 7


def test_a_plugins_error(host: Host) -> None:
    """Code and message are the plugin's own; which plugin it was is in the details, and for a reader."""
    failure: JsonObject = {"error": {"code": 100, "msg": "banana", "details": "peel"}, "stderr": "out of bananas\n"}
    host.plugins.install("first", ADD=failure)
    error, text = host.fail("add", "blue", NETNS)
    assert (error["cniVersion"], error["code"], error["msg"]) == ("1.1.0", 100, "banana")
    assert str(error["details"]).startswith('plugin type="first" failed (add): banana; peel')
    assert "first: out of bananas\n" in text
    assert text.endswith(f"{error['details']}\n")
    assert host.verbs == ["ADD", "DEL"]


def test_what_plugins_say_is_shown(host: Host) -> None:
    """Standard error of a plugin that succeeds is let through, as libcni does."""
    host.plugins.install("first", ADD={"result": RESULT, "stderr": "slipping\n"})
    assert host.run("add", "blue", NETNS).stderr == "first: slipping\n"


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "words"),
    [
        (("add", "red", NETNS), {}, 7, "no network configuration named 'red'"),
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
def test_errors_are_cnis(
    host: Host, arguments: tuple[str, ...], variables: dict[str, str], code: int, words: str
) -> None:
    """Whatever is wrong, it is a CNI error on standard output, words on standard error, and exit status 1."""
    error, text = host.fail(*arguments, **variables)
    assert error["code"] == code
    assert words in str(error["msg"])
    assert words in text
    assert host.verbs == []


@pytest.mark.parametrize("arguments", [("add", "blue"), ("ad", "blue", NETNS), ("add", "--no-such", "blue", NETNS)])
def test_a_wrong_command_line(host: Host, arguments: tuple[str, ...]) -> None:
    """It is an error like any other, ends with 1, as cnitool's does, and says what is expected."""
    error, text = host.fail(*arguments)
    assert error["code"] == 4
    assert "Usage: cni-invoker" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_interruption(host: Host, number: signal.Signals) -> None:
    """The plugin is ended too, and what its DEL needs is remembered."""
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


def test_status_and_version(host: Host) -> None:
    """The namespace, which cnitool wants, is not needed."""
    host.plugins.install("first", VERSION={"supportedVersions": ["1.0.0", "1.1.0"]})
    for arguments in (("blue",), ("blue", NETNS)):
        assert host.do("status", *arguments) == ""
        assert parse_json(host.do("version", *arguments).encode()) == {
            "cniVersion": "1.1.0",
            "supportedVersions": {"first": ["1.0.0", "1.1.0"]},
        }
    host.plugins.install("first", VERSION={"supportedVersions": ["1.0.0"]})
    error, _ = host.fail("status", "blue")
    assert error["code"] == 1
    host.configurations.joinpath("20-red.conflist").write_text(
        json.dumps({"cniVersions": ["1.0.0", "1.1.0"], "name": "red", "plugins": [{"type": "first"}]})
    )
    assert host.do("status", "red") == ""  # negotiated, as ADD would
    host.plugins.install("first", STATUS={"error": {"code": 50, "msg": "not yet"}})
    error, _ = host.fail("status", "blue")
    assert (error["code"], error["msg"]) == (50, "not yet")


def test_an_interruption_that_is_ignored(host: Host) -> None:
    """`nohup` means what it says."""
    host.plugins.install("first", ADD={"sleep_s": 1, "result": RESULT})
    with host.running("add", "blue", NETNS, ignoring="HUP") as adding:
        host.wait_for("ADD")
        adding.send_signal(signal.SIGHUP)
        output, _ = adding.communicate(timeout=LIMIT_S)
        assert (adding.returncode, json.loads(output)["ips"]) == (0, RESULT["ips"])


def test_a_parent_that_ignores_its_children(host: Host) -> None:
    """The disposition that makes the kernel forget how children ended is inherited, and does not get to the tool."""
    ignoring = "import os, sys; from signal import *; signal(SIGCHLD, SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", ignoring, *host.command("add", "blue", NETNS)]
    done = subprocess.run(command, env=host.environment(), stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    assert parse_json(done.stdout) == RESULT


def test_check_of_what_is_not_attached(host: Host) -> None:
    """What was never added, or undone, or cut off, is told so, and no plugin is asked to complain of it."""
    error, _ = host.fail("check", "blue", NETNS)
    assert error["msg"] == f"eth0 of {ID} is not attached to blue: add it first"
    assert error["code"] == 3
    host.plugins.install("first", ADD={"error": {"code": 999, "msg": "banana"}}, DEL={"signal": 9})
    host.fail("add", "blue", NETNS)
    error, _ = host.fail("check", "blue", NETNS)
    why = "its ADD or its DEL has not completed; delete it, and add it again"
    assert error["msg"] == f"eth0 of {ID} is not attached to blue: {why}"
    assert "CHECK" not in host.verbs


def test_warnings_are_sentences(host: Host) -> None:
    """What the package logs for programs is for a reader here."""
    host.configure("10-blue.conflist", {"type": "first"}, {"type": "last"})
    host.plugins.install("last", ADD={"error": {"code": 999, "msg": "banana"}}, DEL={"error": {"code": 9, "msg": "no"}})
    _, text = host.fail("add", "blue", NETNS)
    assert "plugin last did not undo its add, but the other plugins have run: plugin type=" in text
    assert "plugin.delete_failed" not in text
    host.cache.joinpath("results", f"blue-{ID}-eth0").write_text("garbage")
    done = host.run("del", "blue", NETNS)
    assert f"the cached attachment in {host.cache}/results/blue-{ID}-eth0 is not used: " in done.stderr


def test_version_of_the_tool(host: Host) -> None:
    """Beside the plugins' versions, which `version` asks for, the tool has one."""
    assert re.fullmatch(r"cni-invoker \d+\.\d+\.\S+, CNI 0\.1\.0 to 1\.1\.0\n", host.do("--version"))


def test_validate(host: Host) -> None:
    """The report is printed, and the exit status says whether it is good."""
    assert f"  ok       first                {host.plugins.directory}/first" in host.do("validate", "blue")
    host.configure("20-red.conflist", {"type": "first"}, {"type": "gone"}, name="red")
    done = host.run("validate", "red")
    assert done.returncode == 1
    assert "  PROBLEM  gone" in done.stdout
    report = as_object(parse_json(host.run("validate", "red", "--json").stdout.encode()), "the report")
    assert report["name"] == "red"
    assert host.verbs == []


def test_list(host: Host) -> None:
    """Which files are used, which are hidden by others, and which are broken."""
    used = host.configurations / "10-blue.conflist"
    hidden = host.configure("20-blue.conflist", {"type": "first"})
    broken = host.configurations / "30-red.conflist"
    broken.write_text('{\n "name": }')
    lines = host.do("list").splitlines()
    assert lines[0] == f"blue             {used}  (CNI 1.1.0: first)"
    assert lines[1] == f"  shadowed       {hidden}"
    assert lines[2].startswith(f"broken           {broken}, line 2, column 10:")
    listed = as_object(parse_json(host.do("list", "--json").encode()), "the list")
    assert listed["networks"] == [{"name": "blue", "source": str(used), "cniVersion": "1.1.0", "plugins": ["first"]}]
    assert listed["shadowed"] == [{"name": "blue", "source": str(hidden), "by": str(used)}]
    assert "no network configuration in /nowhere" in host.do("list", NETCONFPATH="/nowhere")


def test_the_example_of_the_documentation(host: Host, tmp_path: Path) -> None:
    """The program in docs/cni-invoker.md runs as it stands there, with the directories of this test."""
    text = (Path(__file__).parents[4] / "docs" / "cni-invoker.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for there, here in (
        ("/etc/cni/net.d", host.configurations),
        ("/opt/cni/bin", host.plugins.directory),
        ("/var/lib/cni", host.cache),
    ):
        assert f'"{there}"' in program
        program = program.replace(f'"{there}"', f'"{here}"')
    file = tmp_path / "example.py"
    file.write_text(program)
    command = [sys.executable, "-W", "error", str(file)]
    assert subprocess.check_output(command, env=host.environment(), text=True, timeout=LIMIT_S) == "10.1.2.3/24\n"
    assert host.verbs == ["ADD", "DEL"]
    host.plugins.install("first", ADD={"error": {"code": 100, "msg": "banana"}})
    said = subprocess.check_output(command, env=host.environment(), text=True, timeout=LIMIT_S)
    assert said == "first says 'banana' (code 100)\n"


def test_the_documentation_names_every_command() -> None:
    """Each command and variable has a row."""
    text = (Path(__file__).parents[4] / "docs" / "cni-invoker.md").read_text("utf-8")
    shown = subprocess.check_output([sys.executable, "-m", "cni_invoker", "--help"], text=True, timeout=LIMIT_S)
    commands = re.findall(r"^  (\w+)  ", shown.partition("Commands:")[2], re.MULTILINE)
    assert set(commands) == {"add", "attachments", "check", "del", "gc", "list", "status", "validate", "version"}
    variables = re.findall(r"^  ([A-Z_]+)  .*?(?:\[(.*)\])?$", shown, re.MULTILINE)
    assert len(variables) == 5
    for command in commands:
        assert re.search(rf"^\| `{command}\b", text, re.MULTILINE)
    for variable, default in variables:
        assert re.search(rf"^\| `{variable}` *\| {f'`{default}`' if default else ''} *\|", text, re.MULTILINE)


def test_delete_ends_what_a_killed_add_has_left_behind(host: Host, tmp_path: Path) -> None:
    """The plugin runs on without the command; it must not complete its ADD while, or after, that is undone."""
    netns = str(tmp_path / "netns")  # a container that no other test has
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
    assert host.names("locks") == ["blue"]
    assert host.names("results") == []


def test_nobody_looks_for_plugins_after_a_clean_end(host: Host) -> None:
    """An operation that comes to its end, good or bad, leaves nothing that would have to be looked for."""
    host.do("add", "blue", NETNS)
    host.fail("add", "blue", NETNS)
    assert host.names("locks") == ["blue"]
