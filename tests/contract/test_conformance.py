# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The conformance kit: our library conforms, the kit finds what does not, and the published table is true."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from cni_bridge_spec import render_json
from cni_invoker import CniError, ConfigurationDirectories, Runtime
from cni_tool import CachedRuntime, FileCache
from cni_tool.forms import parse_attachment
from tests.conformance import Case, Driver, load_cases, run_case
from tests.conformance.__main__ import main
from tests.conformance.driver import Answer
from tests.differential.libcni import find_cnitool, find_driver

CASES = {case.id: case for case in load_cases()}
PROJECT = Path(__file__).parents[2]
LIBCNI = PROJECT / "tests/conformance/libcni"
TABLE = (PROJECT / "docs/conformance.md").read_text("utf-8")


class Library(Driver):
    """Our library in this process, as a program uses it; the command `cni-invoker` takes longer to start."""

    def run(self, verb: str, network: str, netns: Path, cache: Path, variables: Mapping[str, str]) -> Answer:
        """Act as a driver of the kit."""
        plugins = Runtime(variables["CNI_PATH"], environment={**os.environ, **variables})
        runtime = CachedRuntime(plugins, FileCache(cache))
        try:
            attachment = parse_attachment(str(netns), variables)
            found = ConfigurationDirectories(variables["NETCONFPATH"]).index().find(network)
            match verb:
                case "add":
                    return Answer(True, render_json(asyncio.run(runtime.add(found, attachment)).document).decode(), "")
                case "check":
                    asyncio.run(runtime.check(found, attachment))
                case _:
                    asyncio.run(runtime.delete(found, attachment))
        except CniError as exc:
            return Answer(False, str(exc), "")
        return Answer(True, "", "")


def rows() -> dict[str, list[str]]:
    """The cells of each row of the published table, by case."""
    lines = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_our_library_conforms(case: Case, tmp_path: Path) -> None:
    """Every case, those that neither the specification nor libcni requires included."""
    assert run_case(case, Library(()), tmp_path, tmp_path / "cache") == ()


def test_no_case_has_the_id_of_another() -> None:
    """IDs are unique."""
    assert len(load_cases()) == len(CASES)


@pytest.mark.parametrize("program", ["true", "false"])
def test_a_runtime_that_does_nothing(program: str, tmp_path: Path) -> None:
    """It fails every case, but those in which nothing may happen."""
    passed = set()
    for case in CASES.values():
        (tmp_path / case.id).mkdir()
        if not run_case(case, Driver.parse(program), tmp_path / case.id, tmp_path / "cache"):
            passed.add(case.id)
    refused = {"interface-names", "network-names", "nested-files", "missing-plugin-runs-nothing", "no-result"}
    assert passed == ({"del-without-add"} if program == "true" else refused)


def test_the_program(tmp_path: Path) -> None:
    """It says what is wrong, and its exit status is 1 if the specification is violated."""
    runtime = tmp_path / "runtime"
    runtime.write_text('#!/bin/sh\n[ $# = 4 ] && echo "$@" >>${0%/*}/log\n')
    runtime.chmod(0o755)
    options = ["--case", "del-order", "--case", "del-without-add"]
    done = CliRunner().invoke(main, ["--driver", f"mine={runtime} {{cache}}", *options])
    assert done.exit_code == 1
    assert "FAIL spec   del-order: DEL runs the plugins in reverse" in done.output
    assert "step 2 (del): plugins called: none" in done.output
    assert "mine: 1 of 2; failed: spec 1" in done.output
    verbs = [line.split()[1:3] for line in (tmp_path / "log").read_text().splitlines()]
    assert verbs == [["add", "blue"], ["del", "blue"], ["del", "blue"]]


@pytest.mark.slow
def test_our_command() -> None:
    """`cni-invoker` is a driver as it is."""
    driver = f"{sys.executable} -m cni_tool {{verb}} --cache-dir {{cache}} {{network}} {{netns}}"
    done = CliRunner().invoke(main, ["--driver", driver, "--case", "add-order", "--case", "del-stops"])
    assert done.exit_code == 0, done.output


def test_the_published_table_has_cases() -> None:
    """Level and text are those of the data."""
    assert rows() == {id_: [CASES[id_].level, CASES[id_].text] for id_ in rows()}


@pytest.mark.slow
@pytest.mark.parametrize("program", ["libcni", "cnitool"])
def test_the_published_verdicts(program: str, tmp_path: Path) -> None:
    """They are what libcni and cnitool do, if they have been built here."""
    libcni = find_driver(LIBCNI)
    command = find_cnitool() if program == "cnitool" else None if libcni is None else (str(libcni), "{cache}")
    if command is None:
        pytest.skip(f"{program} is not built here; run `make libcni`")
    if program == "cnitool" and subprocess.run((*command[: command.index("sh")], "true"), check=False).returncode:
        pytest.skip("this user may not make user namespaces")
    driver = Driver((*command, "{verb}", "{network}", "{netns}"))
    published = rows()
    for case in CASES.values():
        (tmp_path / case.id).mkdir()
        failures = run_case(case, driver, tmp_path / case.id, tmp_path / case.id / "cache")
        assert (case.id in published) is bool(failures), (case.id, failures)
