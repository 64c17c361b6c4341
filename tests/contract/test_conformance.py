# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""cni_invoker compared with what libcni's tests require, and what they should require: `cni_cases.yaml`."""

import re
from pathlib import Path

import pytest

from tests.contract.conformance import DIVERGENCES, IMPROVED_ELSEWHERE, RUNNERS, Case, Scene, load_cases
from tests.contract.conformance.case import Level

COUNT, CASES = load_cases()
LEVELS = {case.id: case.level for case in CASES}
PROJECT = Path(__file__).parents[2]


def test_every_case_is_run() -> None:
    """The file has as many cases as it says, each case has a runner, and each runner a case."""
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids)) == COUNT == 112
    assert set(RUNNERS) == set(ids)


def test_divergences_have_a_case_and_a_reason() -> None:
    """Divergences are listed only for cases that libcni decides, not for improvements on it."""
    assert set(DIVERGENCES) <= set(LEVELS)
    assert not [case for case in DIVERGENCES if LEVELS[case] is Level.IMPROVED]
    assert all(len(divergence.reason) > 20 for divergence in DIVERGENCES.values())


def test_differences_are_documented() -> None:
    """The page for users names each case in which this project does something else than libcni, and no other."""
    page = (PROJECT / "docs/conformance.md").read_text("utf-8").partition("## libcni's own tests")[2]
    named = {
        name for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)
    }
    assert named == {*DIVERGENCES, *(case for case, level in LEVELS.items() if level is Level.DIVERGENCE)}


def test_improvements_elsewhere_exist_and_are_tested() -> None:
    """An improvement that another package implements names an existing definition and an existing test."""
    assert {LEVELS[case] for case in IMPROVED_ELSEWHERE} == {Level.IMPROVED}
    for better in IMPROVED_ELSEWHERE.values():
        assert len(better.reason) > 20
        for named in (better.definition, better.test):
            file, name = named.split("::")
            assert re.search(rf"^(async def|def|class) {name}\b", (PROJECT / file).read_text(), re.MULTILINE), named


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_case(case: Case, tmp_path: Path) -> None:
    """cni_invoker does what the case expects, or what the list of divergences says instead."""
    await RUNNERS[case.id](case, Scene(tmp_path))
