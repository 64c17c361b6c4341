# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`tests/jobs` runs make targets one after another, and ends with a table of their results."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

JOBS: Final = Path(__file__).parents[1] / "jobs"
MAKE: Final = """#!/bin/sh
[ "$1" = --no-print-directory ] || exit 3
case "$2" in
    first|last) echo "this is $2" ;;
    skipping) printf '%s\n' "no plugins" "no engine" "no plugins" >>"$JOBS_SKIPPED" ;;
    *) echo "this breaks"; exit 2 ;;
esac
"""


@pytest.fixture(name="environment")
def make_environment(tmp_path: Path) -> Mapping[str, str]:
    """An environment with a `make` that knows two targets; the root directory of another Python may have no make."""
    make = tmp_path / "make"
    make.write_text(MAKE, "utf-8")
    make.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def run(environment: Mapping[str, str], *jobs: str) -> subprocess.CompletedProcess[str]:
    """Run jobs."""
    return subprocess.run((JOBS, *jobs), env=environment, capture_output=True, text=True, check=False)


def table(output: str) -> list[tuple[str, ...]]:
    """Return the rows below the heading `all`: job, time if it ran, and result."""
    rows = output.partition("\n== all")[2].partition("\n\n")[0]
    return [tuple(re.split(r" {2,}", row)) for row in rows.splitlines()[1:]]


def test_all_jobs_pass(environment: Mapping[str, str]) -> None:
    """Each job has a heading, its output, and a row with its time."""
    done = run(environment, "first", "last")
    assert done.returncode == 0
    assert "\n== first\nthis is first\n\n== last\nthis is last\n" in done.stdout
    first, last = table(done.stdout)
    assert (first[0], first[2], last[0], last[2]) == ("first", "passed", "last", "passed")
    assert all(re.fullmatch(r"\d+:\d\d", row[1]) for row in (first, last))


def test_a_job_fails(environment: Mapping[str, str]) -> None:
    """Later jobs are not run; the table names the failed job, and the exit status is that of make."""
    done = run(environment, "first", "broken", "last")
    assert done.returncode == 2
    assert "this is last" not in done.stdout
    assert [(row[0], row[-1]) for row in table(done.stdout)] == [
        ("first", "passed"),
        ("broken", "failed, exit status 2"),
        ("last", "not run"),
    ]


def test_skipped_tests_are_counted(environment: Mapping[str, str]) -> None:
    """The table has their number by job, and a list below it their reasons."""
    done = run(environment, "first", "skipping", "last")
    assert [row[-1] for row in table(done.stdout)] == ["passed", "passed, 3 skipped", "passed"]
    _, _, reasons = done.stdout.partition("\n== skipped\n")
    assert [line.split(maxsplit=1) for line in reasons.splitlines()] == [["2", "no plugins"], ["1", "no engine"]]


@pytest.mark.slow
def test_a_skipped_test_gives_its_reason(tmp_path: Path) -> None:
    """It is one line in the file, also if workers run the tests."""
    test, report = tmp_path / "test_skipped.py", tmp_path / "skipped"
    test.write_text("import pytest\n\ndef test_it() -> None:\n    pytest.skip('there is no engine\\nhere')\n", "utf-8")
    plugins = ("-p", "tests.skipped", "-p", "xdist", "-p", "no:cacheprovider", "-c", "/dev/null")
    command = (sys.executable, "-m", "pytest", *plugins, "--numprocesses", "1", test)
    env = os.environ | {"JOBS_SKIPPED": str(report), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, env=env, cwd=JOBS.parents[1], capture_output=True, check=True)
    assert report.read_text("utf-8") == "there is no engine here\n"
