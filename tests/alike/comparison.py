# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs cases on both sides, and keeps account of the rows of the table that were needed."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cnm_bridge.core.settings import AttachOption
from tests.alike.cases import CASES, Case
from tests.alike.differences import Difference, Place, Row, compare, read_table
from tests.alike.side import Side
from tests.alike.subject import Subject
from tests.lab import Engine

_SETTLE_S: Final = 5.0
"""How long a container may take until it has all that it gets after its start (before Engine 28), on a busy machine."""


class Comparison:
    """Both sides on one lab."""

    def __init__(self, theirs: Side, ours: Side, engine: Engine, attach: AttachOption) -> None:
        self.engine = engine
        self.compared: set[str] = set()
        self._sides = (theirs, ours)
        self._attach = attach
        self._rows = read_table()
        self._needed: set[Row] = set()

    def run(self, case: Case) -> Sequence[Difference]:
        """Run a case on both sides; return the differences that no row explains."""
        subjects = [Subject(side, case, side.number * 100 + CASES.index(case)) for side in self._sides]
        place = Place(case=case.name, engine=self.engine.version, attach=self._attach)
        with ThreadPoolExecutor(len(subjects)) as threads:
            try:
                list(threads.map(Subject.run, subjects))
                deadline = time.monotonic() + _SETTLE_S
                while True:
                    found = compare(*threads.map(Subject.observe, subjects))
                    unexplained = [one for one in found if not self._explain(one, place)]
                    if not unexplained or time.monotonic() > deadline:
                        self.compared.add(case.name)
                        return unexplained
            finally:
                list(threads.map(Subject.remove, subjects))

    def needless_rows(self) -> Sequence[Row]:
        """Return the rows about this engine and mode that explained nothing."""
        place = Place(case="", engine=self.engine.version, attach=self._attach)
        return [row for row in self._rows if row.is_for(place) and row not in self._needed]

    def _explain(self, found: Difference, place: Place) -> bool:
        rows = [row for row in self._rows if row.explains(found, place)]
        self._needed.update(rows)
        return bool(rows)
