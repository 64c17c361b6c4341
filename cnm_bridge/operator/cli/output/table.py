# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Renders tables, with columns as wide as their content. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

SHORT: Final = 12
"""The number of digits of an ID that Docker shows."""

_LEAST: Final = 16
"""The letters of a long name that are shown at least."""

_GAP: Final = 2
"""The spaces between two columns."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with one line for the head and one for each row."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def fit_columns(
    keys: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    optional: Sequence[str] = (),
    shortened: Collection[str] = (),
    width: int,
) -> Mapping[str, int]:
    """Return the columns of a table for which a terminal is wide enough, with their widths.

    Texts wrap between words. If even the columns that must be there are too wide, so is the table.

    Args:
        keys: The columns.
        rows: The head and all rows.
        optional: The columns that may be left out, the first one first.
        shortened: The columns whose words may be shortened, see `shorten`.
        width: Of the terminal.
    """
    cells = {key: [row[i] for row in rows] for i, key in enumerate(keys)}
    needed = {
        key: max(
            len(texts[0]), *(min(len(word), _LEAST) if key in shortened else len(word) for word in _words(texts[1:]))
        )
        for key, texts in cells.items()
    }
    for key in (key for key in optional if key in cells):
        if _total(needed.values()) <= width:
            break
        del needed[key]
    if _total(needed.values()) > width:
        return needed
    widths = {key: max(map(len, cells[key])) for key in needed}
    while (excess := _total(widths.values()) - width) > 0:
        key = max(widths, key=lambda key: widths[key] - needed[key])
        widths[key] = max(needed[key], widths[key] - excess)
    return widths


def shorten(text: str, width: int) -> str:
    """Return a text whose words have at most a width; what is cut off is an ellipsis."""
    return " ".join(word if len(word) <= width else f"{word[: width - 1]}…" for word in text.split(" "))


def _words(texts: Iterable[str]) -> Iterator[str]:
    """Yield the words of some texts, at least an empty one."""
    yield ""
    for text in texts:
        yield from text.split(" ")


def _total(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
