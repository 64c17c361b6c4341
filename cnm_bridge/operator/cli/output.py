# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a command shows, its rendering as text or JSON, and the options `--json` and `--no-trunc`.

On a terminal tables are made with rich: as wide as the terminal, with colours unless NO_COLOR is set. In a pipe they
are plain text, one line for each row.
"""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Final, TypeVar

import click

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker.cli.echo import echo
from cni_invoker.printable import printable
from cnm_bridge.operator.cli.command import ExitStatus

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


_STYLES: Final = {"deleting": "red", "pending": "yellow", "joining": "yellow", "ready": "yellow"}
_UNLIMITED: Final = 1 << 16
"""Columns; the terminal wraps longer lines."""

_NAMES: Final = frozenset({"container", "image", "network", "name", "configuration"})
"""The keys of names, which a narrow terminal shows shortened."""
_IDS: Final = frozenset({"id", "containerId", "endpointId", "networkId"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        columns: Heading and key of each column.
        rows: The values by key.
        optional: The keys of the columns that a narrow terminal hides, in this order.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[JsonObject]
    optional: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a command shows.

    Attributes:
        document: Everything, for `--json`.
        parts: Tables, and texts between them.
        notes: What the reader should know, for standard error.
    """

    document: JsonValue
    parts: Sequence[Table | str]
    notes: Sequence[str] = field(default=())


def render(shown: Shown, *, as_json: bool, no_trunc: bool) -> None:
    """Print it."""
    for note in shown.notes:
        echo(f"cni-bridge: {printable(note)}", err=True)
    if as_json:
        echo(json.dumps(shown.document, indent=2))
    elif sys.stdout.isatty():
        _print_rich(shown.parts, no_trunc=no_trunc)
    else:
        echo("\n\n".join(_plain(part, no_trunc=no_trunc) for part in shown.parts))


def _plain(part: Table | str, *, no_trunc: bool) -> str:
    if isinstance(part, str):
        return part
    head = [heading for heading, _ in part.columns]
    return table(head, [[_cell(row, key, no_trunc=no_trunc) for _, key in part.columns] for row in part.rows])


def _print_rich(parts: Sequence[Table | str], *, no_trunc: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow, and not needed in a pipe
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(width=_UNLIMITED if no_trunc else None, highlight=False)
    for number, part in enumerate(parts):
        if number:
            console.print()
        if isinstance(part, str):
            text = Text(printable(part, keep="\n\t"))
            console.print(text, soft_wrap=True)  # a command that is wrapped cannot be pasted
            continue
        heads, keys = zip(*part.columns, strict=True)
        rows = [[_cell(row, key, no_trunc=no_trunc) for key in keys] for row in part.rows]
        fitting = fit_columns(
            keys, [heads, *rows], optional=part.optional, shortened=() if no_trunc else _NAMES, width=console.width
        )
        drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for heading, key in part.columns:
            if key in fitting:
                drawn.add_column(heading, no_wrap=no_trunc, overflow="fold", width=fitting[key])
        for row in rows:
            cells = [(cell, fitting[key]) for cell, key in zip(row, keys, strict=True) if key in fitting]
            drawn.add_row(*(Text(shorten(cell, width), style=_STYLES.get(cell, "")) for cell, width in cells))
        console.print(drawn)
        hidden = [heading for heading, key in part.columns if key not in fitting]
        if hidden:
            console.print(Text(f"without {', '.join(hidden)}: --no-trunc shows all columns", style="dim"))


def _cell(row: JsonObject, key: str, *, no_trunc: bool) -> str:
    value = row.get(key)
    if not value and value != 0:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = printable(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    return text if no_trunc or key not in _IDS else text[:SHORT]


_Command = Callable[..., tuple[Shown, ExitStatus]]

R = TypeVar("R")


def shows(command: _Command) -> Callable[..., ExitStatus]:
    """Return a command's function that prints what `command` returns, with the options for that.

    Args:
        command: Returns what it shows, and the exit status.
    """

    @_with_output
    @wraps(command)
    def run(*args: object, as_json: bool, no_trunc: bool, **own: object) -> ExitStatus:
        shown, status = command(*args, **own)
        render(shown, as_json=as_json, no_trunc=no_trunc)
        return status

    return run


def with_json(function: Callable[..., R]) -> Callable[..., R]:
    """Add the option `--json`, for the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")(function)


def _with_output(function: Callable[..., ExitStatus]) -> Callable[..., ExitStatus]:
    """Add the options of commands that show tables."""
    option = click.option("--no-trunc", is_flag=True, help="Show IDs in full length, and cut off nothing.")
    return with_json(option(function))
