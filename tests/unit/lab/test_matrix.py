# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which engines and plugins the system tests combine, and how pytest's last line is parsed."""

from dataclasses import replace
from pathlib import Path

from cnm_bridge.core.settings import AttachOption
from tests.lab import Engine, Plugins, with_nftables
from tests.system.matrix import choose_modes, choose_pairs, parse_counts

ENGINES = [Engine(version=version) for version in ((20, 10, 24), (26, 1, 5), (28, 5, 2))]
PLUGINS = [Plugins(version=version, directory=Path("/plugins")) for version in ((1, 1, 1), (1, 9, 1))]


def names(*, smoke: bool, engines: int = 3, plugins: int = 2) -> list[str]:
    """Return the pairs chosen from so many engines and sets of plugins."""
    pairs = choose_pairs(ENGINES[:engines], PLUGINS[:plugins], smoke=smoke)
    return [f"{engine.name} {these.name}" for engine, these in pairs]


def test_all_engines_are_paired_with_all_plugins() -> None:
    """The full matrix has every combination."""
    assert len(set(names(smoke=False))) == 6


def test_smoke_tests_run_on_other_engines_or_plugins() -> None:
    """Each other engine and the other plugins are used once; without others there is no pair."""
    assert names(smoke=True) == ["26.1.5 1.9.1", "28.5.2 1.1.1"]
    assert names(smoke=True, engines=1) == ["20.10.24 1.9.1"]
    assert names(smoke=True, engines=1, plugins=1) == []


def test_newer_engines_run_in_both_modes() -> None:
    """The smoke tests run in one of them: in `fast` only on the newest engine."""
    newest = Engine(version=(29, 7, 2))
    engines = [*ENGINES, newest]
    modes = {engine.name: choose_modes(engine, engines, smoke=False) for engine in engines}
    both = (AttachOption.MOVE, AttachOption.FAST)
    only = (AttachOption.MOVE,)
    assert modes == {"20.10.24": only, "26.1.5": only, "28.5.2": both, "29.7.2": both}
    assert choose_modes(ENGINES[-1], engines, smoke=True) == only
    assert choose_modes(replace(newest), engines, smoke=True) == (AttachOption.FAST,)  # another object for it


def test_an_engine_with_nftables_is_one_more() -> None:
    """Only from 29 on; its smoke tests run in mode *move*."""
    newest = Engine(version=(29, 7, 2))
    (other,) = with_nftables([*ENGINES, newest])
    assert (newest.name, other.name) == ("29.7.2", "29.7.2+nftables")
    assert choose_modes(other, [*ENGINES, newest], smoke=True) == (AttachOption.MOVE,)


def test_the_counts_of_pytest_are_parsed() -> None:
    """The last line has words and numbers, with and without its frame."""
    assert parse_counts("74 passed in 63.11s (0:01:03)\n") == {"passed": 74}
    line = "=== 1 failed, 73 passed, 2 skipped, 84 deselected, 1 error in 63.11s ==="
    assert parse_counts(line) == {"failed": 1, "passed": 73, "skipped": 2, "error": 1}
    assert parse_counts("no tests ran in 0.01s") == {}
