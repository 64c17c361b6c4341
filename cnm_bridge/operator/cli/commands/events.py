# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge events`: what the daemon does, as it happens."""

import time
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import JsonObject, find_str, get_objects, get_str, get_strings, render_json
from cni_invoker.cli.echo import echo, printable
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.containers import take_inventory
from cnm_bridge.operator.cli.daemon_settings import asks_daemon
from cnm_bridge.operator.cli.options import DOCKER_HOST, with_settings
from cnm_bridge.operator.cli.output import SHORT, with_json

_PAUSE_S: Final = 1.0
"""Between two questions for names."""
_ENGINE_LIMIT_S: Final = 2.0
"""Events wait so long for the engine, once: without its answer they have no names for `_UNASKED_S`."""
_UNASKED_S: Final = 60.0


@click.command(
    "events",
    cls=Command,
    examples=("events", "events --last 50 --no-follow", "events --no-follow --json"),
)
@click.option(
    "--last", type=click.IntRange(min=0), default=10, show_default=True, help="Show so many earlier ones first."
)
@click.option("--no-follow", is_flag=True, help="Do not wait for further ones.")
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@with_json
def events(socket: Path, *, last: int, no_follow: bool, as_json: bool, docker_host: str) -> ExitStatus:
    """Show calls of Docker, executions of plugins and changes of phases as they happen, until Ctrl-C.

    Each has the endpoint that it is about, with its container as far as Docker has it. The daemon keeps some thousand
    events in memory. They have the names that they have in its log: rpc.answered, rpc.refused, plugin.executed,
    endpoint.phase. A reader that is too slow receives events.lost, and how many.

    With --json each line is a JSON object.
    """
    client = AdminClient(socket)
    names = Names(client, docker_host)
    try:
        for event in client.lines("events", last=str(last), follow="0" if no_follow else "1"):
            echo(render_json(event).decode() if as_json else event_line(event, names.of(event)))
    except KeyboardInterrupt:
        pass
    return ExitStatus.FINE


class Names:
    """The names of containers and networks, asked for when an event is about something whose name is not known yet.

    Docker has the name of a container only when its process has started: its first events have the endpoint's ID.
    """

    def __init__(self, client: AdminClient, docker_host: str) -> None:
        self._client = client
        self._docker_host = docker_host
        self._ask_again_s = 0.0
        self._noted: set[str] = set()
        self._known: dict[str, str] = {}

    def of(self, event: JsonObject) -> str:
        """Return what an event is about, e.g. `77ad0a1b2c3d web on blue` or `network blue`."""
        subject = subject_of(event)
        if not subject:
            return "cni-bridge"
        if subject not in self._known and time.monotonic() >= self._ask_again_s:
            self._ask()
        network = self._known.get(find_str(event, "networkId") or "", "").removeprefix("network ")
        return self._known.get(subject, f"{subject[:SHORT]}{f' on {network}' if network else ''}")

    def _ask(self) -> None:
        inventory = take_inventory(self._client, self._docker_host, limit_s=_ENGINE_LIMIT_S)
        self._ask_again_s = time.monotonic() + (_UNASKED_S if inventory.notes else _PAUSE_S)
        for note in {*inventory.notes} - self._noted:
            echo(f"cni-bridge: {note}", err=True)
        self._noted |= {*inventory.notes}
        networks = inventory.networks
        self._known |= {network_id: f"network {name}" for network_id, name in networks.items()}
        for endpoint in get_objects(inventory.document, "endpoints"):
            endpoint_id, container = get_str(endpoint, "id"), inventory.containers.get(get_str(endpoint, "id"))
            if container is not None:
                on = networks.get(get_str(endpoint, "networkId"), "?")
                self._known[endpoint_id] = f"{endpoint_id[:SHORT]} {container.name} on {on}"


def subject_of(event: JsonObject) -> str:
    """Return the ID of the endpoint that an event (`spec/admin/event.json`) is about, else of the network; or ""."""
    ids = (find_str(event, key) for key in ("endpointId", "containerId", "networkId"))
    return next(filter(None, ids), "")


def event_line(event: JsonObject, about: str) -> str:
    """Return an event (`spec/admin/event.json`) as a line: time, what it is about, name, what happened."""
    duration, count, outcome = event.get("durationMs"), event.get("count"), find_str(event, "outcome")
    step = (
        " ".join(filter(None, (find_str(event, "plugin"), find_str(event, "verb"))))
        or (find_str(event, "rpc") or "").rpartition(".")[2]
    )
    is_deleted = event["event"] == "endpoint.phase" and event.get("phase") is None
    parts = (
        "deleted" if is_deleted else find_str(event, "phase") or step,
        None if duration is None else f"{float(str(duration)):.0f} ms",
        " ".join(get_strings(event, "addresses")) if "addresses" in event else None,
        None if outcome == "success" else outcome,
        None if count is None else str(count),
        find_str(event, "error"),
    )
    return printable(f"{str(event['time'])[11:23]}  {about}  {event['event']}  {'  '.join(filter(None, parts))}")
