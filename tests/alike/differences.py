# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The differences that stand, from the table of `docs/docker-bridge.md`.

A row has patterns as of a shell for what is different, for its value on Docker's bridge and for ours; then where it
is (`everywhere`, or some of: cases in backticks, `from Engine N`, `before Engine N`, `--attach MODE`); then the reason.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self

PAGE: Final = Path(__file__).parents[2] / "docs" / "docker-bridge.md"
_ABSENT: Final = "none"
_CELL: Final = re.compile(r"`([^`]*)`|(none)")
_FROM: Final = re.compile(r"from Engine ([\d.]+)")
_BEFORE: Final = re.compile(r"before Engine ([\d.]+)")
_MODE: Final = re.compile(r"`--attach (\w+)`")
_CASE: Final = re.compile(r"`([\w*-]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that two containers do not have in common; values that are missing are `none`."""

    what: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.what}: Docker's bridge has {self.theirs!r}, ours {self.ours!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where containers were compared."""

    case: str
    engine: tuple[int, ...]
    attach: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table."""

    what: str
    theirs: str
    ours: str
    where: str
    reason: str

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read a line of the table.

        Raises:
            ValueError: It has not five cells, or one is not as the module's docstring says.
        """
        what, theirs, ours, where, reason = (cell.strip() for cell in line.strip().strip("|").split("|"))
        rest = where
        for known in (_FROM, _BEFORE, _MODE, _CASE, re.compile(r"everywhere|,|\band\b")):
            rest = known.sub("", rest)
        if not reason or not where or rest.strip():
            raise ValueError(f"not understood: {rest.strip() or line}")
        return cls(what=_text(what), theirs=_text(theirs), ours=_text(ours), where=where, reason=reason)

    def is_for(self, place: Place) -> bool:
        """Return whether this row is about the engine and the mode of a place, in whatever case."""
        first, end, modes = _FROM.search(self.where), _BEFORE.search(self.where), _MODE.findall(self.where)
        return (
            (first is None or place.engine >= _version(first[1]))
            and (end is None or place.engine < _version(end[1]))
            and (not modes or place.attach in modes)
        )

    def explains(self, found: Difference, place: Place) -> bool:
        """Return whether this row is about a difference."""
        cases = _CASE.findall(self.where)
        return (
            self.is_for(place)
            and (not cases or any(fnmatchcase(place.case, case) for case in cases))
            and all(
                fnmatchcase(value, pattern)
                for value, pattern in ((found.what, self.what), (found.theirs, self.theirs), (found.ours, self.ours))
            )
        )


def compare(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Sequence[Difference]:
    """Return how two containers differ: by what was refused, or by everything else."""
    if theirs["refused"] != ours["refused"]:
        return (Difference(what="refused", theirs=theirs["refused"], ours=ours["refused"]),)
    pairs = ((what, theirs.get(what, _ABSENT), ours.get(what, _ABSENT)) for what in sorted({*theirs, *ours}))
    return tuple(Difference(what=what, theirs=one, ours=other) for what, one, other in pairs if one != other)


def read_table() -> Sequence[Row]:
    """Return the rows of the page's table."""
    return tuple(_rows(PAGE.read_text("utf-8")))


def _rows(page: str) -> Iterator[Row]:
    _, _, after = page.partition("| what |")
    for line in after.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield Row.parse(line)


def _text(cell: str) -> str:
    found = _CELL.fullmatch(cell)
    if found is None:
        raise ValueError(f"neither `text` nor none: {cell}")
    return found[1] if found[1] is not None else _ABSENT


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
