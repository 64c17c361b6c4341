# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""cni_invoker beside libcni itself: random cases, and attachments that one has made and the other takes over.

They need libcni and Go, which `make libcni` fetches from Debian.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cni_bridge_spec import JsonObject
from extras.cni_tool.tests.unit.command_host import ID, LIMIT_S, NETNS, Host
from tests.differential.libcni import Libcni, find_cnitool, find_driver
from tests.differential.runs import run_cases

SEED = 2026


@pytest.fixture(name="driver", scope="module")
def find_built_driver() -> Path:
    """The executable with libcni."""
    driver = find_driver()
    if driver is None:
        pytest.skip("libcni is not here: `make libcni` builds it from Debian's packages")
    return driver


@pytest.fixture(name="host")
def make_host(tmp_path: Path) -> Host:
    """A host with a network of fake plugins, and the command cni-invoker."""
    return Host(tmp_path)


@pytest.mark.slow
def test_a_thousand_cases_differ_only_as_listed(driver: Path) -> None:
    """Requests, their order, results, errors and records are libcni's, but for the classes in differences.yaml."""
    outcome = run_cases(driver, SEED, range(1000), processes=1)
    assert outcome.unknown == []
    assert outcome.equal > 400


def ask_libcni(driver: Path, host: Host, *operations: JsonObject) -> list[dict[str, Any]]:
    """Run operations with libcni and real plugins, as cnitool would."""
    request = {
        "confDir": str(host.configurations),
        "cacheDir": str(host.cache),
        "pluginDirs": [str(host.plugins.directory)],
        "network": "blue",
        "containerID": ID,
        "ifname": "eth0",
        "netns": NETNS,
        "args": [["A", "1"]],
        "capabilityArgs": {"mac": "02::"},
        "operations": list(operations),
        "real": True,
    }
    with Libcni(driver) as libcni:
        libcni.send(request)
        return libcni.receive()[1:]


def test_the_command_takes_over_what_libcni_has_added(driver: Path, host: Host) -> None:
    """CHECK and DEL receive the values of libcni's ADD, without being given them again."""
    (added,) = ask_libcni(driver, host, {"op": "add"})
    assert not added["error"]
    host.do("check", "blue", NETNS)
    host.do("del", "blue", NETNS)
    assert host.verbs == ["ADD", "CHECK", "DEL"]
    for command in host.commands[1:]:
        assert command.environment["CNI_ARGS"] == "A=1"
        assert command.stdin["runtimeConfig"] == {"mac": "02::"}
        assert command.stdin["prevResult"] == added["value"]
    assert not list((host.cache / "results").iterdir())


def test_libcni_takes_over_what_the_command_has_added(driver: Path, host: Host) -> None:
    """Our record is one of libcni's."""
    printed = json.loads(host.do("add", "blue", NETNS, CNI_ARGS="A=1", CAP_ARGS='{"mac": "02::"}'))
    checked, deleted = ask_libcni(driver, host, {"op": "check"}, {"op": "del"})
    assert (checked["error"], deleted["error"]) == ("", "")
    assert host.verbs == ["ADD", "CHECK", "DEL"]
    for command in host.commands[1:]:
        assert command.environment["CNI_ARGS"] == "A=1"
        assert command.stdin["prevResult"] == printed
    assert not list((host.cache / "results").iterdir())


@pytest.mark.parametrize("percent", [0, 1, 50, 99])
@pytest.mark.parametrize("first", ["libcni", "command"])
def test_a_truncated_record_can_be_deleted(driver: Path, host: Host, first: str, percent: int) -> None:
    """As after a power failure: DEL runs without a result, and the record is gone."""
    if first == "libcni":
        ask_libcni(driver, host, {"op": "add"}, {"op": "truncate", "percent": percent})
        host.do("del", "blue", NETNS)
    else:
        host.do("add", "blue", NETNS)
        (_, deleted) = ask_libcni(driver, host, {"op": "truncate", "percent": percent}, {"op": "del"})
        assert not deleted["error"]
    assert host.verbs == ["ADD", "DEL"]
    assert "prevResult" not in host.commands[-1].stdin
    assert not list((host.cache / "results").iterdir())


@pytest.fixture(name="cnitool", scope="module")
def find_built_cnitool() -> tuple[str, ...]:
    """The command line of cnitool itself."""
    cnitool = find_cnitool()
    if cnitool is None:
        pytest.skip("cnitool is not here: `make libcni` builds it from Debian's source")
    return cnitool


def run_cnitool(cnitool: Sequence[str], host: Host, verb: str, **variables: str) -> None:
    """Run cnitool on the host, which must succeed."""
    words = [word.replace("{cache}", str(host.cache)) for word in (*cnitool, verb, "blue", NETNS)]
    done = subprocess.run(
        words, env=host.environment(**variables), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("first", ["cnitool", "command"])
def test_cnitool_and_the_command_take_over_from_each_other(cnitool: Sequence[str], host: Host, first: str) -> None:
    """The same namespace is the same container to both; the one checks and deletes what the other has added."""
    if first == "cnitool":
        run_cnitool(cnitool, host, "add", CNI_ARGS="A=1")
        host.do("check", "blue", NETNS)
        host.do("del", "blue", NETNS)
    else:
        host.do("add", "blue", NETNS, CNI_ARGS="A=1")
        run_cnitool(cnitool, host, "check")
        run_cnitool(cnitool, host, "del")
    assert host.verbs == ["ADD", "CHECK", "DEL"]
    assert {command.environment["CNI_CONTAINERID"] for command in host.commands} == {ID}
    for command in host.commands[1:]:
        assert "prevResult" in command.stdin
        assert command.environment["CNI_ARGS"] == (
            "A=1" if first == "cnitool" else ""
        )  # cnitool uses its own, not ADD's
    assert not list((host.cache / "results").iterdir())


def test_a_failed_del_of_one_is_finished_by_the_other(driver: Path, host: Host) -> None:
    """The record stays until a DEL of either one succeeds."""
    host.do("add", "blue", NETNS)
    host.plugins.install("first", DEL={"error": {"code": 100, "msg": "banana"}})
    (failed,) = ask_libcni(driver, host, {"op": "del"})
    assert (failed["code"], failed["msg"]) == (100, "banana")
    host.fail("del", "blue", NETNS)
    assert len(list((host.cache / "results").iterdir())) == 1
    host.plugins.install("first")
    (deleted,) = ask_libcni(driver, host, {"op": "del"})
    assert not deleted["error"]
    assert not list((host.cache / "results").iterdir())
