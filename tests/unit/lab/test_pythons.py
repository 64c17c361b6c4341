# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which interpreters the fast tests run under, and what is said of one that cannot be had."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.pythons import VERSIONS, main, read_requirements

CLASSIFIER = "    Programming Language :: Python :: "
OWN = "3.11"
"""The oldest one, which the machine has."""


def test_every_supported_version_is_tested() -> None:
    """The versions that the package claims are those of the tests, beside the machine's own."""
    lines = Path(__file__).parents[3].joinpath("setup.cfg").read_text("utf-8").splitlines()
    claimed = [line.removeprefix(CLASSIFIER) for line in lines if line.startswith(f"{CLASSIFIER}3.")]
    assert claimed == [OWN, *VERSIONS]


def test_requirements() -> None:
    """What the daemon and its tests import is installed; what checks the source is not."""
    names = {line.partition(">")[0] for line in read_requirements()}
    assert {"plyvel", "aiohttp", "pytest", "hypothesis"} <= names
    assert names.isdisjoint({"mypy", "ruff", "import-linter", "types-jsonschema"})


def test_one_that_cannot_be_had(machine: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, with the reason, and is no failure; a version manager's stand-in is no interpreter."""
    cache = machine("#!/bin/sh\necho 'E: no mirror' >&2\nexit 100\n")
    for version in ("3.12", "3.13"):
        stand_in = cache.parents[1] / "bin" / f"python{version}"
        stand_in.write_text(f"#!/bin/sh\necho 'python{version}: command not found' >&2\nexit 127\n")
        stand_in.chmod(0o755)
    assert main(["--only", "3.12", "--only", "3.13"]) == 0
    said = capsys.readouterr().out
    assert (
        "Python 3.12: not run, it cannot be had: there is no python3.12 in PATH, and no suite of Debian has one" in said
    )
    assert "Python 3.13: not run, it cannot be had: apt-get: exit status 100: E: no mirror" in said
