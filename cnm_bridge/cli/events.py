# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge events` and `top`: what the daemon does, as it happens."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cnm_bridge.cli.admin_command import asks_daemon
from cnm_bridge.cli.exit_status import ExitStatus
from cnm_bridge.cli.output.options import shows
from cnm_bridge.errors import BadOption

if TYPE_CHECKING:  # these imports are slow and would delay `serve`
    from cni_bridge_spec import JsonObject

__all__ = ["events", "top"]


@click.command("events")
@click.option(
    "--last", type=click.IntRange(min=0), default=10, show_default=True, help="Show so many earlier ones first."
)
@click.option("--no-follow", is_flag=True, help="Do not wait for further ones.")
@click.option(
    "--format", "fmt", metavar="FORMAT", default="table", show_default=True, help="table, json, or a template."
)
@asks_daemon
def events(socket: Path, *, last: int, no_follow: bool, fmt: str) -> ExitStatus:
    """Show calls of Docker, executions of plugins and changes of phases as they happen, until Ctrl-C.

    The daemon keeps some thousand events in memory. They have the names that they have in its log: rpc.answered,
    rpc.refused, plugin.executed, endpoint.phase. A reader that is too slow receives events.lost, and how many.

    With --format json each line is a JSON object. Templates have its values, such as {{.Time}} and {{.Event}}.
    """
    from cni_bridge_spec import render_json  # noqa: PLC0415 - slow, and would delay `serve`
    from cnm_bridge.cli.admin_client import AdminClient  # noqa: PLC0415
    from cnm_bridge.cli.output.shown import parse_format  # noqa: PLC0415

    try:
        chosen = parse_format(fmt)
        lines = AdminClient(socket).lines("events", last=str(last), follow="0" if no_follow else "1")
        for event in lines:
            if chosen == "table":
                click.echo(_text(event))
            else:
                click.echo(render_json(event).decode() if chosen == "json" else chosen.render(event))
    except BadOption as exc:
        raise click.UsageError(str(exc)) from exc
    except KeyboardInterrupt:
        pass
    return ExitStatus.FINE


@click.command("top")
@asks_daemon
@shows
def top(socket: Path) -> tuple[object, ExitStatus]:
    """Show how often Docker has called and plugins were executed lately, and how long that took; best with --watch.

    The figures are those of the events that the daemon keeps in memory.

    Templates have Name, Count, Failed, Mean, Max.
    """
    from cnm_bridge.cli.admin_client import AdminClient  # noqa: PLC0415 - slow, and would delay `serve`
    from cnm_bridge.cli.figures import show_figures  # noqa: PLC0415

    client = AdminClient(socket)
    return show_figures(client.get("status"), client.lines("events", last="100000", follow="0")), ExitStatus.FINE


def _text(event: "JsonObject") -> str:
    """Return an event as a line: time, name, and everything else, with short IDs."""
    from cnm_bridge.cli.table import SHORT  # noqa: PLC0415

    facts = {key: value for key, value in event.items() if key not in {"time", "event"} and value is not None}
    shown = (f"{key}={str(value)[:SHORT] if key.endswith('Id') else value}" for key, value in facts.items())
    return f"{str(event['time'])[11:23]}  {event['event']:<15}  {'  '.join(shown)}"
