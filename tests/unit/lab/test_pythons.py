# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which interpreters the fast tests run under, and what is reported of a missing one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.pythons import VERSIONS, main, read_requirements

CLASSIFIER = "    Programming Language :: Python :: "
OWN = "3.11"
"""The oldest version, which the machine has."""


def test_every_claimed_python_version_is_tested() -> None:
    """The versions in setup.cfg are the machine's own and those of the tests."""
    lines = Path(__file__).parents[3].joinpath("setup.cfg").read_text("utf-8").splitlines()
    claimed = [line.removeprefix(CLASSIFIER) for line in lines if line.startswith(f"{CLASSIFIER}3.")]
    assert claimed == [OWN, *VERSIONS]


def test_requirements_exclude_linters() -> None:
    """Imports of the daemon and of its tests are installed; programs that check the source are not."""
    names = {line.partition(">")[0] for line in read_requirements()}
    assert {"plyvel", "aiohttp", "pytest", "hypothesis"} <= names
    assert names.isdisjoint({"mypy", "ruff", "import-linter", "types-jsonschema"})


def test_a_missing_interpreter_is_reported(
    machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is printed, and the exit status is 0; a version manager's placeholder is not an interpreter."""
    cache = machine("#!/bin/sh\necho 'E: no mirror' >&2\nexit 100\n")
    monkeypatch.delenv("LAB_UBUNTU_MIRROR", raising=False)
    for version in ("3.10", "3.12", "3.13"):
        placeholder = cache.parents[1] / "bin" / f"python{version}"
        placeholder.write_text(f"#!/bin/sh\necho 'python{version}: command not found' >&2\nexit 127\n")
        placeholder.chmod(0o755)
    assert main(["--only", "3.10", "--only", "3.12", "--only", "3.13"]) == 0
    output = capsys.readouterr().out
    missing = "there is no python3.10 in PATH, and no suite of Debian or Ubuntu has one"
    assert f"Python 3.10: not run, it cannot be had: {missing}" in output
    unnamed = "noble is Ubuntu's, and LAB_UBUNTU_MIRROR does not name a mirror of Ubuntu"
    assert f"Python 3.12: not run, it cannot be had: {unnamed}" in output
    assert "Python 3.13: not run, it cannot be had: apt-get: exit status 100: E: no mirror" in output
