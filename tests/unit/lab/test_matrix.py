# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which engines and plugins the system tests run on together, and what is made of pytest's last line."""

from pathlib import Path

from tests.lab import Engine, Plugins
from tests.system.matrix import choose_pairs, parse_counts

ENGINES = [Engine(version=version) for version in ((20, 10, 24), (26, 1, 5), (28, 5, 2))]
PLUGINS = [Plugins(version=version, directory=Path("/plugins")) for version in ((1, 1, 1), (1, 9, 1))]


def names(*, smoke: bool, engines: int = 3, plugins: int = 2) -> list[str]:
    """Give the pairs of so many engines and sets of plugins."""
    pairs = choose_pairs(ENGINES[:engines], PLUGINS[:plugins], smoke=smoke)
    return [f"{engine.name} {these.name}" for engine, these in pairs]


def test_all_engines_with_all_plugins() -> None:
    """Nothing is left out."""
    assert len(set(names(smoke=False))) == 6


def test_the_handful_runs_where_the_others_do_not() -> None:
    """Either the engine or the plugins are not the machine's; where there are no others, nothing runs."""
    assert names(smoke=True) == ["20.10.24 1.9.1", "26.1.5 1.1.1", "28.5.2 1.1.1"]
    assert names(smoke=True, engines=1) == ["20.10.24 1.9.1"]
    assert names(smoke=True, engines=1, plugins=1) == []


def test_counts() -> None:
    """Pytest's last line has words and numbers, with and without its frame."""
    assert parse_counts("74 passed in 63.11s (0:01:03)\n") == {"passed": 74}
    line = "=== 1 failed, 73 passed, 2 skipped, 84 deselected, 1 error in 63.11s ==="
    assert parse_counts(line) == {"failed": 1, "passed": 73, "skipped": 2, "error": 1}
    assert parse_counts("no tests ran in 0.01s") == {}
