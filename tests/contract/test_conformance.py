# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""cni_invoker against what libcni's own tests demand, and what they should: `cni_cases.yaml`."""

import re
from pathlib import Path

import pytest

from tests.contract.conformance import DIVERGENCES, IMPROVED_ELSEWHERE, RUNNERS, Case, Scene, load_cases
from tests.contract.conformance.case import Level

COUNT, CASES = load_cases()
LEVELS = {case.id: case.level for case in CASES}
PROJECT = Path(__file__).parents[2]


def test_every_case_is_run() -> None:
    """There are as many cases as the file says, each has a runner, and no runner is without its case."""
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids)) == COUNT == 104
    assert set(RUNNERS) == set(ids)


def test_divergences_have_a_case_and_a_reason() -> None:
    """The list of divergences is about cases that libcni decides; what is to be better is no divergence from it."""
    assert set(DIVERGENCES) <= set(LEVELS)
    assert not [case for case in DIVERGENCES if LEVELS[case] is Level.IMPROVED]
    assert all(len(divergence.reason) > 20 for divergence in DIVERGENCES.values())


def test_what_is_improved_elsewhere_is_there_and_tested() -> None:
    """A case that asks for better, and is answered elsewhere, names the definition and the test; both exist."""
    assert {LEVELS[case] for case in IMPROVED_ELSEWHERE} == {Level.IMPROVED}
    for better in IMPROVED_ELSEWHERE.values():
        assert len(better.reason) > 20
        for named in (better.place, better.test):
            file, name = named.split("::")
            assert re.search(rf"^(async def|def|class) {name}\b", (PROJECT / file).read_text(), re.MULTILINE), named


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_case(case: Case, tmp_path: Path) -> None:
    """What is expected comes true, or what the list of divergences says instead."""
    await RUNNERS[case.id](case, Scene(tmp_path))
