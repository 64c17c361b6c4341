# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a command shows, and its rendering as text or JSON.

On a terminal tables are made with rich: as wide as the terminal, with colours unless NO_COLOR is set. In a pipe they
are plain text, one line for each row.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker.cli.echo import echo
from cni_invoker.printable import printable
from cnm_bridge.operator.cli.output.table import SHORT, fit_columns, shorten, table

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
