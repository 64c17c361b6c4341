# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a command shows, its rendering as text or JSON, and the options `--json` and `--no-trunc`.

Ages, numbers of things and published ports are rendered here, too.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from textwrap import fill
from typing import Final, TypeVar

import click

from cni_bridge_spec import JsonObject, JsonValue, find_int, find_str
from cni_invoker.cli.echo import echo, printable
from cnm_bridge.operator.cli.command import ExitStatus

SHORT: Final = 12
"""The number of digits of an ID that Docker shows."""

_GAP: Final = "  "
"""Between two columns."""
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
        lines: The lines.
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
    click.echo("\n\n".join(_render(part, no_trunc=no_trunc, width=width) for part in shown.parts))


def _render(part: Table | Prose | str, *, no_trunc: bool, width: int | None) -> str:
    match part:
        case Table():
            return _draw(part, no_trunc=no_trunc, width=width)
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
    """Return a line with line ends between words.

    Args:
        line: The line.
        width: That of the terminal; None leaves the line as it is.
        hang: The columns by which further lines are indented.
    """
    if width is None or len(line) <= width:
        return line
    return fill(
        line, max(width, 2 * hang), subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )


def _draw(shown: Table, *, no_trunc: bool, width: int | None) -> str:
    """Return a table; in a terminal that is too narrow without some of its optional columns, which the last line names.

    If the others are too wide all the same, so is the table.
    """
    heads = {key: heading for heading, key in shown.columns}
    cells = {key: [head, *(_cell(row, key, no_trunc=no_trunc) for row in shown.rows)] for key, head in heads.items()}
    widths = {key: max(map(len, texts)) for key, texts in cells.items()}
    for key in (key for key in shown.optional if key in cells):
        if width is None or no_trunc or sum(widths.values()) + len(_GAP) * (len(widths) - 1) <= width:
            break
        del widths[key]
    rows = zip(*(cells[key] for key in widths), strict=True)
    lines = [
        _GAP.join(text.ljust(size) for text, size in zip(row, widths.values(), strict=True)).rstrip() for row in rows
    ]
    hidden = [heading for key, heading in heads.items() if key not in widths]
    return "\n".join((*lines, *([f"without {', '.join(hidden)}: --no-trunc shows all columns"] if hidden else ())))


def _cell(row: JsonObject, key: str, *, no_trunc: bool) -> str:
    value = row.get(key)
    if not value and value != 0:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = printable(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
    return text if no_trunc or key not in _IDS else text[:SHORT]


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
