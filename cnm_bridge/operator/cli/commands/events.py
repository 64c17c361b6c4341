# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge events` and `top`: what the daemon does, as it happens."""

from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import render_json
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.content.event_text import event_line, with_words
from cnm_bridge.operator.cli.content.figures import show_figures
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.fields import templates_have
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.output.shown import parse_format

__all__ = ["events", "top"]

_EVENT: Final = (
    *("Time", "Event", "Rpc", "NetworkId", "EndpointId", "DurationMs", "Error", "Plugin", "Verb", "ContainerId"),
    *("Outcome", "Phase", "Count"),
)


@click.command("events")
@click.option(
    "--last", type=click.IntRange(min=0), default=10, show_default=True, help="Show so many earlier ones first."
)
@click.option("--no-follow", is_flag=True, help="Do not wait for further ones.")
@click.option(
    "--format", "fmt", metavar="FORMAT", default="table", show_default=True, help="table, json, or a template."
)
@asks_daemon
@templates_have(*_EVENT)
def events(socket: Path, *, last: int, no_follow: bool, fmt: str) -> ExitStatus:
    """Show calls of Docker, executions of plugins and changes of phases as they happen, until Ctrl-C.

    The daemon keeps some thousand events in memory. They have the names that they have in its log: rpc.answered,
    rpc.refused, plugin.executed, endpoint.phase. A reader that is too slow receives events.lost, and how many.

    With --format json each line is a JSON object. In a template what an event lacks is empty.

    The exit status is 0; 3 if the daemon does not answer.
    """
    chosen = parse_format(fmt)
    try:
        lines = AdminClient(socket).lines("events", last=str(last), follow="0" if no_follow else "1")
        for event in lines:
            if chosen == "json":
                click.echo(render_json(event).decode())
            else:
                readable = with_words(event)
                click.echo(event_line(readable) if chosen == "table" else chosen.render(readable))
    except KeyboardInterrupt:
        pass
    return ExitStatus.FINE


@click.command("top")
@asks_daemon
@templates_have("Name", "Count", "Failed", "Mean", "Max")
@shows
def top(socket: Path) -> tuple[object, ExitStatus]:
    """Show how often Docker has called and plugins were executed lately, and how long that took; best with --watch.

    The figures are those of the events that the daemon keeps in memory.

    The exit status is 0; 3 if the daemon does not answer.
    """
    client = AdminClient(socket)
    return show_figures(client.get("status"), client.lines("events", last="100000", follow="0")), ExitStatus.FINE
