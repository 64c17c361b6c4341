# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""cni_invoker against what libcni's own tests demand, and what they should: `cni_cases.yaml`."""

from pathlib import Path

import pytest

from tests.contract.conformance import DIVERGENCES, RUNNERS, Case, Scene, load_cases

COUNT, CASES = load_cases()


def test_every_case_is_run() -> None:
    """There are as many cases as the file says, each has a runner, and no runner is without its case."""
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids)) == COUNT == 104
    assert set(RUNNERS) == set(ids)


def test_divergences_have_a_case_and_a_reason() -> None:
    """The list of divergences is about cases that libcni decides; what is to be better is no divergence from it."""
    levels = {case.id: case.level for case in CASES}
    assert set(DIVERGENCES) <= set(levels)
    assert all(len(divergence.reason) > 20 for divergence in DIVERGENCES.values())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_case(case: Case, tmp_path: Path) -> None:
    """What is expected comes true, or what the list of divergences says instead."""
    await RUNNERS[case.id](case, Scene(tmp_path))
