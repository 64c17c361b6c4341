# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which engines and plugins the system tests combine, and how pytest's last line is parsed."""

from pathlib import Path

import pytest

from cnm_bridge.core.settings import AttachOption
from tests.lab import Engine, Plugins, with_nftables
from tests.system.matrix import choose_modes, choose_pairs, parse_counts

ENGINES = [Engine(version=version) for version in ((20, 10, 24), (26, 1, 5), (28, 5, 2))]
NEWEST = Engine(version=(29, 7, 2))
PLUGINS = [Plugins(version=version, directory=Path("/plugins")) for version in ((1, 1, 1), (1, 9, 1))]


def names(*, smoke: bool, plugins: int = 2) -> list[str]:
    """Return the pairs chosen from all engines and so many sets of plugins."""
    return [f"{engine.name} {these.name}" for engine, these in choose_pairs(ENGINES, PLUGINS[:plugins], smoke=smoke)]


def test_all_engines_are_paired_with_all_plugins() -> None:
    """The full matrix has every combination."""
    assert len(set(names(smoke=False))) == 6


def test_smoke_tests_run_on_each_engine() -> None:
    """The machine's engine has the machine's plugins, the others have the other plugins, if there are any."""
    assert names(smoke=True) == ["20.10.24 1.1.1", "26.1.5 1.9.1", "28.5.2 1.9.1"]
    assert names(smoke=True, plugins=1) == ["20.10.24 1.1.1", "26.1.5 1.1.1", "28.5.2 1.1.1"]


@pytest.mark.parametrize(
    ("engine", "smoke", "expected"),
    [
        ("20.10.24", False, {AttachOption.AUTO}),
        ("20.10.24", True, {AttachOption.AUTO}),
        ("28.5.2", False, {AttachOption.AUTO, AttachOption.FAST}),
        ("28.5.2", True, {AttachOption.AUTO}),  # the main engine, which `make system` uses in mode fast
        ("29.7.2", True, {AttachOption.AUTO, AttachOption.FAST}),
        ("29.7.2+nftables", True, {AttachOption.AUTO, AttachOption.FAST}),
    ],
)
def test_newer_engines_run_in_both_modes(engine: str, smoke: bool, expected: set[AttachOption]) -> None:
    """Older engines have only one mode; a mode that `make system` uses is no smoke test."""
    (found,) = [one for one in (*ENGINES, NEWEST, *with_nftables([*ENGINES, NEWEST])) if one.name == engine]
    assert set(choose_modes(found, smoke=smoke)) == expected


def test_the_counts_of_pytest_are_parsed() -> None:
    """The last line has words and numbers, with and without its frame."""
    assert parse_counts("74 passed in 63.11s (0:01:03)\n") == {"passed": 74}
    line = "=== 1 failed, 73 passed, 2 skipped, 84 deselected, 1 error in 63.11s ==="
    assert parse_counts(line) == {"failed": 1, "passed": 73, "skipped": 2, "error": 1}
    assert parse_counts("no tests ran in 0.01s") == {}
