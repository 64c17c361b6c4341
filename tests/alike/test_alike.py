# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container on a network of ours is as on Docker's own bridge, but for what `docs/docker-bridge.md` lists."""

import pytest

from tests.alike.cases import CASES, Case
from tests.alike.comparison import Comparison

pytestmark = pytest.mark.timeout(300)  # a case takes two seconds on a quiet machine


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_alike(comparison: Comparison, case: Case) -> None:
    """From inside and in `docker inspect`, after the same commands, all is equal, or a row says why it is not."""
    if comparison.engine.version < case.since:
        since = ".".join(map(str, case.since))
        pytest.skip(f"{since} is the first engine that knows these options; this is {comparison.engine.name}")
    unexplained = comparison.run(case)
    assert not unexplained, "\n".join(map(str, unexplained))


def test_each_row_is_a_difference(comparison: Comparison) -> None:
    """A row that explains nothing any more has to go."""
    wanted = {case.name for case in CASES if comparison.engine.version >= case.since}
    if comparison.compared != wanted:
        pytest.skip(f"{len(wanted - comparison.compared)} of {len(wanted)} cases were not run")
    assert comparison.needless_rows() == []
