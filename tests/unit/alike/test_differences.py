# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The table of differences: which rows there may be, and which difference a row explains."""

import pytest

from tests.alike.differences import Difference, Place, Row, compare, read_table

MTU = Difference(what="link LINK.1: mtu", theirs="1500", ours="1400")


def place(case: str = "plain", engine: tuple[int, ...] = (28, 5, 2), attach: str = "auto") -> Place:
    """Where two containers were compared."""
    return Place(case=case, engine=engine, attach=attach)


def row(where: str, what: str = "link *: mtu", theirs: str = "`1500`", ours: str = "`1400`") -> Row:
    """A row of the table."""
    return Row.parse(f"| `{what}` | {theirs} | {ours} | {where} | the reason |")


def test_the_page_can_be_read() -> None:
    """Each row has a reason that ends as a sentence."""
    rows = read_table()
    assert rows
    assert all(one.reason.endswith(".") for one in rows)


def test_what_is_compared() -> None:
    """Values that differ, and those that only one container has; nothing else if only one of them was refused."""
    same = {"refused": "", "a": "1"}
    assert compare(same, same) == ()
    assert compare({**same, "b": "2"}, {**same, "a": "3"}) == (
        Difference(what="a", theirs="1", ours="3"),
        Difference(what="b", theirs="2", ours="none"),
    )
    assert compare(same, {"refused": "no"}) == (Difference(what="refused", theirs="", ours="no"),)
    assert [one.what for one in compare({**same, "refused": "no"}, {"refused": "no"})] == ["a"]


@pytest.mark.parametrize(
    ("one", "explains"),
    [
        (row("everywhere"), True),
        (row("everywhere", what="link LINK.2: mtu"), False),
        (row("everywhere", theirs="`1400`"), False),
        (row("everywhere", ours="none"), False),
        (row("`plain`"), True),
        (row("`pl*`, `other`"), True),
        (row("`other`"), False),
        (row("from Engine 28"), True),
        (row("from Engine 28.5.2"), True),
        (row("from Engine 29"), False),
        (row("before Engine 29"), True),
        (row("before Engine 28.5"), False),
        (row("`--attach auto`"), True),
        (row("`plain` and `--attach fast`"), False),
    ],
)
def test_what_a_row_explains(one: Row, *, explains: bool) -> None:
    """All of its cells must match."""
    assert one.explains(MTU, place()) is explains


def test_rows_for_a_run() -> None:
    """A row is about an engine and a mode whatever the case is: it must explain something there."""
    assert row("`other`").is_for(place())
    assert not row("`other` and `--attach fast`").is_for(place())
    assert not row("before Engine 28").is_for(place())


@pytest.mark.parametrize(
    "line",
    [
        "| `a` | `b` | `c` | everywhere | |",
        "| `a` | `b` | `c` | on Sundays | the reason |",
        "| `a` | b | `c` | everywhere | the reason |",
        "| `a` | `b` | `c` | everywhere |",
    ],
)
def test_a_row_that_cannot_be_read(line: str) -> None:
    """It has no reason, an unknown place, a value without backticks, or a missing cell."""
    with pytest.raises(ValueError, match=r"."):
        Row.parse(line)
