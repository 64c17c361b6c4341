# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`tests/jobs` runs make targets one after another, and ends with a table of their results."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

JOBS: Final = Path(__file__).parents[1] / "jobs"
MAKE: Final = """#!/bin/sh
[ "$1" = --no-print-directory ] || exit 3
case "$2" in
    first|last) echo "this is $2" ;;
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
    """Return the rows below the last heading: job, time if it ran, and result."""
    _, _, rows = output.rpartition("\n== all")
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
