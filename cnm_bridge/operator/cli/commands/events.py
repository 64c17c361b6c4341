# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge events`: what the daemon does, as it happens."""

import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import JsonObject, find_str, get_strings, render_json
from cni_invoker.cli.echo import echo, printable
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.output import SHORT, with_json
from cnm_bridge.operator.cli.settings.daemon_settings import asks_daemon

_INDENT: Final = 30


@click.command(
    "events",
    cls=Command,
    examples=("events", "events --last 50 --no-follow", "events --no-follow --json"),
)
@click.option(
    "--last", type=click.IntRange(min=0), default=10, show_default=True, help="Show so many earlier ones first."
)
@click.option("--no-follow", is_flag=True, help="Do not wait for further ones.")
@asks_daemon
@with_json
def events(socket: Path, *, last: int, no_follow: bool, as_json: bool) -> ExitStatus:
    """Show calls of Docker, executions of plugins and changes of phases as they happen, until Ctrl-C.

    The daemon keeps some thousand events in memory. They have the names that they have in its log: rpc.answered,
    rpc.refused, plugin.executed, endpoint.phase. A reader that is too slow receives events.lost, and how many.

    With --json each line is a JSON object.
    """
    try:
        lines = AdminClient(socket).lines("events", last=str(last), follow="0" if no_follow else "1")
        for event in lines:
            echo(render_json(event).decode() if as_json else _fold(event_line(with_words(event))))
    except KeyboardInterrupt:
        pass
    return ExitStatus.FINE


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
