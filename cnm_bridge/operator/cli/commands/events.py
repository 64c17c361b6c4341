# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge events` and `top`: what the daemon does, as it happens."""

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import JsonObject, find_str, get_objects, get_str, get_strings, render_json
from cni_invoker.printable import printable
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.command import ASKS, Command
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.options import shows, templates_have, with_formats
from cnm_bridge.operator.cli.output.shown import Shown, Table, parse_format
from cnm_bridge.operator.cli.output.table import SHORT

_EVENT: Final = (
    *("Time", "Event", "Rpc", "NetworkId", "EndpointId", "DurationMs", "Error", "Plugin", "Verb", "ContainerId"),
    *("Outcome", "Phase", "Addresses", "Count"),
)

_INDENT: Final = 30
_COLUMNS: Final = (("COUNT", "count"), ("FAILED", "failed"), ("MEAN MS", "mean"), ("MAX MS", "max"))


@click.command(
    "events",
    cls=Command,
    examples=(
        "events",
        "events --last 50 --no-follow",
        "events --no-follow --json",
        "events --no-follow --format '{{.Time}} {{.Event}}'",
    ),
    exits={
        ExitStatus.FINE: "It was shown.",
        **ASKS,
    },
    see_also=("top", "inspect"),
)
@click.option(
    "--last", type=click.IntRange(min=0), default=10, show_default=True, help="Show so many earlier ones first."
)
@click.option("--no-follow", is_flag=True, help="Do not wait for further ones.")
@asks_daemon
@templates_have(*_EVENT)
@with_formats
def events(socket: Path, *, last: int, no_follow: bool, fmt: str) -> ExitStatus:
    """Show calls of Docker, executions of plugins and changes of phases as they happen, until Ctrl-C.

    The daemon keeps some thousand events in memory. They have the names that they have in its log: rpc.answered,
    rpc.refused, plugin.executed, endpoint.phase. A reader that is too slow receives events.lost, and how many.

    With --format json each line is a JSON object. In a template what an event lacks is empty.
    """
    chosen = parse_format(fmt)
    try:
        lines = AdminClient(socket).lines("events", last=str(last), follow="0" if no_follow else "1")
        for event in lines:
            if chosen == "json":
                echo(render_json(event).decode())
            else:
                readable = with_words(event)
                echo(_fold(event_line(readable)) if chosen == "table" else chosen.render(readable))
    except KeyboardInterrupt:
        pass
    return ExitStatus.FINE


@click.command(
    "top",
    cls=Command,
    examples=(
        "top",
        "top --watch",
    ),
    exits={
        ExitStatus.FINE: "It was shown.",
        **ASKS,
    },
    see_also=("events",),
)
@asks_daemon
@templates_have("Name", "Count", "Failed", "Mean", "Max")
@shows
def top(socket: Path) -> tuple[Shown, ExitStatus]:
    """Show how often Docker has called and plugins were executed lately, and how long that took; best with --watch.

    The figures are those of the events that the daemon keeps in memory.
    """
    client = AdminClient(socket)
    return show_figures(client.get("status"), client.lines("events", last="100000", follow="0")), ExitStatus.FINE


def with_words(event: JsonObject) -> JsonObject:
    """Return an event (`spec/admin/event.json`) for a reader: a deleted endpoint has the phase `deleted`, not null."""
    is_deleted = event["event"] == "endpoint.phase" and event.get("phase") is None
    return {**event, "phase": "deleted"} if is_deleted else event


def event_line(event: JsonObject) -> str:
    """Return an event as a line: time, name, what happened to what; 80 columns without addresses and an error."""
    ids = (find_str(event, key) for key in ("endpointId", "containerId", "networkId"))
    duration, count, outcome = event.get("durationMs"), event.get("count"), find_str(event, "outcome")
    parts = (
        (find_str(event, "rpc") or "").rpartition(".")[2],
        " ".join(filter(None, (find_str(event, "plugin"), find_str(event, "verb")))),
        next((found[:SHORT] for found in ids if found), ""),
        find_str(event, "phase"),
        " ".join(get_strings(event, "addresses")) if "addresses" in event else None,
        None if duration is None else f"{float(str(duration)):.0f} ms",
        None if outcome == "success" else outcome,
        None if count is None else str(count),
        find_str(event, "error"),
    )
    return f"{str(event['time'])[11:23]}  {event['event']:<15} {printable('  '.join(filter(None, parts)))}"


def _fold(line: str) -> str:
    """Return a line with line ends between words, as wide as the terminal; in a pipe it stays a line."""
    if not sys.stdout.isatty():
        return line
    width = max(shutil.get_terminal_size().columns, 2 * _INDENT)
    return textwrap.fill(line, width, subsequent_indent=" " * _INDENT, break_long_words=False, break_on_hyphens=False)


def show_figures(status: JsonObject, events: Iterable[JsonObject]) -> Shown:
    """Return tables of calls and of executions, and the number of endpoints in each phase.

    Args:
        status: The daemon's status.
        events: The last events, `spec/admin/event.json`.
    """
    calls: dict[str, list[JsonObject]] = {}
    executions: dict[str, list[JsonObject]] = {}
    for event in events:
        match get_str(event, "event"):
            case "rpc.answered" | "rpc.refused":
                calls.setdefault(get_str(event, "rpc").partition(".")[2], []).append(event)
            case "plugin.executed":
                executions.setdefault(f"{get_str(event, 'plugin')} {get_str(event, 'verb')}", []).append(event)
    phases = Counter(get_str(one, "phase") for one in get_objects(status, "endpoints"))
    tables = {"CALL": _rows(calls), "PLUGIN": _rows(executions)}
    pending = len(get_objects(status, "pendingTeardowns"))
    summary = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none"
    return Shown(
        document={"calls": tables["CALL"], "executions": tables["PLUGIN"], "phases": dict(phases)},
        rows=[*tables["CALL"], *tables["PLUGIN"]],
        parts=[
            f"endpoints: {summary}; failed teardowns: {pending}",
            *(Table(columns=((title, "name"), *_COLUMNS), rows=rows) for title, rows in tables.items() if rows),
        ],
    )


def _rows(events: Mapping[str, list[JsonObject]]) -> list[JsonObject]:
    rows: list[JsonObject] = []
    for name, found in sorted(events.items(), key=lambda item: -len(item[1])):
        durations = [float(str(event["durationMs"])) for event in found]
        failed = sum(
            find_str(event, "error") is not None or event.get("outcome", "success") != "success" for event in found
        )
        mean = round(sum(durations) / len(durations), 1)
        rows.append({"name": name, "count": len(found), "failed": failed, "mean": mean, "max": max(durations)})
    return rows
