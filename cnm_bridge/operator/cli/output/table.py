# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Renders tables, with columns as wide as their content. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

SHORT: Final = 12
"""The number of digits of an ID that Docker shows."""

_GAP: Final = 2
"""The spaces between two columns."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with one line for the head and one for each row."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def fit_columns(
    keys: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str], width: int
) -> Mapping[str, int | None]:
    """Return the columns of a table for which a terminal is wide enough, with their widths.

    Texts wrap between words. If even the columns that must be there are too wide, the widths are None.

    Args:
        keys: The columns.
        rows: The head and all rows.
        optional: The columns that may be left out, the first one first.
        width: Of the terminal.
    """
    cells = {key: [row[i] for row in rows] for i, key in enumerate(keys)}
    needed = {key: max(len(word) for text in texts for word in text.split(" ")) for key, texts in cells.items()}
    for key in (key for key in optional if key in cells):
        if _total(needed.values()) <= width:
            break
        del needed[key]
    if _total(needed.values()) > width:
        return dict.fromkeys(needed)
    widths = {key: max(map(len, cells[key])) for key in needed}
    while (excess := _total(widths.values()) - width) > 0:
        key = max(widths, key=lambda key: widths[key] - needed[key])
        widths[key] = max(needed[key], widths[key] - excess)
    return widths


def _total(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
