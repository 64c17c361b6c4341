# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a command shows, its rendering as text or JSON, and the options `--json` and `--no-trunc`.

On a terminal tables are as wide as it is, with colours unless NO_COLOR is set. In a pipe they have one line for each
row. Ages, numbers of things and published ports are rendered here, too.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import zip_longest
from textwrap import fill, wrap
from typing import Final, TypeVar

import click

from cni_bridge_spec import JsonObject, JsonValue, find_int, find_str
from cni_invoker.documents.printable import printable
from cnm_bridge.operator.cli.command import ExitStatus
from cnm_bridge.operator.cli.echo import echo

SHORT: Final = 12
"""The number of digits of an ID that Docker shows."""

_LEAST: Final = 16
"""The letters of a long name that are shown at least."""
_GAP: Final = 2
"""The spaces between two columns."""

_BOLD: Final = "1"
_FAINT: Final = "2"
_STYLES: Final = {"deleting": "31", "pending": "33", "joining": "33", "ready": "33"}
"""Phases that need attention, or change soon: red and yellow (ECMA-48, SGR)."""

_NAMES: Final = frozenset({"container", "image", "network", "name", "configuration"})
"""The keys of names, which a narrow terminal shows shortened."""
_IDS: Final = frozenset({"id", "containerId", "endpointId", "networkId"})

R = TypeVar("R")
UNKNOWN: Final = "?"
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


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
class Prose:
    """Lines that a terminal shows with line ends between words.

    Attributes:
        hang: The columns by which the further lines of each are indented.
        commands: How lines begin that are left as they are, because they have a command.
    """

    lines: Sequence[str]
    hang: int = 0
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a command shows.

    Attributes:
        document: Everything, for `--json`.
        parts: Tables, and texts between them, which are left to the terminal: a wrapped command cannot be pasted.
        notes: What the reader should know, for standard error.
    """

    document: JsonValue
    parts: Sequence[Table | Prose | str]
    notes: Sequence[str] = field(default=())


def shows(command: Callable[..., tuple[Shown, ExitStatus]]) -> Callable[..., ExitStatus]:
    """Return a command's function that prints what `command` returns, with the options for that."""

    @with_json
    @click.option("--no-trunc", is_flag=True, help="Show IDs in full length, and cut off nothing.")
    @wraps(command)
    def run(*args: object, as_json: bool, no_trunc: bool, **own: object) -> ExitStatus:
        shown, status = command(*args, **own)
        render(shown, as_json=as_json, no_trunc=no_trunc)
        return status

    return run


def with_json(function: Callable[..., R]) -> Callable[..., R]:
    """Add the option `--json`, for the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")(function)


def render(shown: Shown, *, as_json: bool, no_trunc: bool) -> None:
    """Print it."""
    for note in shown.notes:
        echo(f"cni-bridge: {printable(note)}", err=True)
    if as_json:
        echo(json.dumps(shown.document, indent=2))
        return
    width = terminal_width()
    has_colours = width is not None and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    click.echo(
        "\n\n".join(_render(part, no_trunc=no_trunc, width=width, has_colours=has_colours) for part in shown.parts)
    )


def _render(part: Table | Prose | str, *, no_trunc: bool, width: int | None, has_colours: bool) -> str:
    match part:
        case Table():
            return _draw(part, no_trunc=no_trunc, width=width, has_colours=has_colours)
        case Prose():
            return "\n".join(
                line if line.startswith(part.commands) else fold(line, width, hang=part.hang)
                for line in map(printable, part.lines)
            )
    return printable(part, keep="\n\t")


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fold(line: str, width: int | None, *, hang: int) -> str:
    """Return a line with line ends between words, for a terminal of a width; further lines are indented by `hang`."""
    if width is None or len(line) <= width:
        return line
    return fill(
        line, max(width, 2 * hang), subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )


def _draw(shown: Table, *, no_trunc: bool, width: int | None, has_colours: bool) -> str:
    heads, keys = zip(*shown.columns, strict=True)
    rows = [[_cell(row, key, no_trunc=no_trunc) for key in keys] for row in shown.rows]
    if width is None or no_trunc:
        widths: Mapping[str, int] = {key: max(len(row[i]) for row in (heads, *rows)) for i, key in enumerate(keys)}
        if width is not None and _total(widths.values()) > width:
            return "\n\n".join(_record(heads, row) for row in rows)
    else:
        widths = fit_columns(keys, [heads, *rows], optional=shown.optional, shortened=_NAMES, width=width)

    def style(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if has_colours and code else text

    def lines_of(row: Sequence[str], code: str = "") -> Iterator[str]:
        cells = {key: text for key, text in zip(keys, row, strict=True) if key in widths}
        shown = {key: shorten(text, widths[key]) for key, text in cells.items()}
        wrapped = [
            wrap(text, widths[key], break_long_words=False, break_on_hyphens=False) or [""]
            for key, text in shown.items()
        ]
        for texts in zip_longest(*wrapped, fillvalue=""):
            line = (
                style(text.ljust(widths[key]), code or _STYLES.get(text, ""))
                for key, text in zip(cells, texts, strict=True)
            )
            yield (" " * _GAP).join(line).rstrip()

    lines = [*lines_of(heads, _BOLD), *(line for row in rows for line in lines_of(row))]
    hidden = [heading for heading, key in shown.columns if key not in widths]
    if hidden:
        lines.append(style(f"without {', '.join(hidden)}: --no-trunc shows all columns", _FAINT))
    return "\n".join(lines)


def _record(heads: Sequence[str], row: Sequence[str]) -> str:
    """Return a row of a table that is wider than the terminal: a line for each column."""
    longest = max(map(len, heads))
    return "\n".join(f"{head.ljust(longest)}  {text}" for head, text in zip(heads, row, strict=True))


def _cell(row: JsonObject, key: str, *, no_trunc: bool) -> str:
    value = row.get(key)
    if not value and value != 0:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = printable(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    return text if no_trunc or key not in _IDS else text[:SHORT]


def fit_columns(
    keys: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    optional: Sequence[str] = (),
    shortened: Collection[str] = (),
    width: int,
) -> Mapping[str, int]:
    """Return the columns of a table for which a terminal is wide enough, with their widths.

    Texts wrap between words. Of the optional columns the first is left out first; words of the shortened ones may be
    cut, see `shorten`. If even the columns that must be there are too wide, so is the table.
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


def count(number: int, noun: str) -> str:
    """Return a number of things in words, e.g. `1 endpoint`, `2 endpoints`, `2 addresses` or `2 memories`."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('s') else 's'}"
    return f"{number} {noun if number == 1 else several}"


def changed_text(network: JsonObject) -> str:
    """Return that a network's configuration has changed since endpoints were made; empty if it has not.

    Args:
        network: The network, as in `spec/admin/status.json`.
    """
    outdated = find_int(network, "outdatedEndpoints") or 0
    return f"since {count(outdated, 'endpoint')} {'was' if outdated == 1 else 'were'} made" if outdated else ""


def age(created_at: int | None) -> str:
    """Return how long ago a time was, e.g. `3h`."""
    if created_at is None:
        return UNKNOWN
    return duration(int(time.time()) - created_at)


def duration(seconds: int) -> str:
    """Return a number of seconds as `90s` is written, in its largest unit."""
    seconds = max(0, seconds)
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return f"{seconds // size}{unit}"


def ports_text(ports: Iterable[JsonObject]) -> str:
    """Return published ports in order, e.g. `8080->80/tcp, 127.0.0.1:9000->90/udp`.

    Args:
        ports: E.g. `{"hostIP": "127.0.0.1", "hostPort": 8080, "containerPort": 80, "protocol": "tcp"}`.
    """
    return ", ".join(map(_port, sorted(ports, key=_order)))


def _order(port: JsonObject) -> tuple[str, str, int]:
    return find_str(port, "hostIP") or "", find_str(port, "protocol") or "tcp", find_int(port, "hostPort") or 0


def _port(port: JsonObject) -> str:
    ip, protocol, host = _order(port)
    where = f"[{ip}]:" if ":" in ip else f"{ip}:" if ip else ""
    return f"{where}{host}->{find_int(port, 'containerPort') or 0}/{protocol}"
