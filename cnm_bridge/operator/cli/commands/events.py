# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge events`: what the daemon does, as it happens."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

import click

from cni_bridge_spec import JsonObject, find_str, get_strings, render_json
from cni_invoker.documents.printable import printable
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.containers import take_inventory
from cnm_bridge.operator.cli.daemon_settings import asks_daemon
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.output import SHORT, fold, terminal_width, with_json

_INDENT: Final = 32
_QUIET_S: Final = 0.7
_LONGEST_S: Final = 3.0
"""Events are shown when so long none has followed, or when the first has waited so long: then Docker has the name of a
container that has just started."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.3
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
@asks_daemon("docker_host")
@with_json
def events(settings: Settings, *, last: int, no_follow: bool, as_json: bool) -> ExitStatus:
    """Show calls of Docker, executions of plugins and changes of phases as they happen, until Ctrl-C.

    They stand below the endpoint that they are about, with its container as far as Docker has it; with --no-follow each
    endpoint has one block. The daemon keeps some thousand events in memory. They have the names that they have in its
    log: rpc.answered, rpc.refused, plugin.executed, endpoint.phase. A reader that is too slow receives events.lost, and
    how many.

    With --json each line is a JSON object.
    """
    client = AdminClient(settings.admin_path)
    found = client.lines("events", last=str(last), follow="0" if no_follow else "1")
    try:
        if as_json:
            for event in found:
                echo(render_json(event).decode())
        else:
            _show(
                [[*found]] if no_follow else batches_of(found),
                Names(client, settings.docker_host, follows=not no_follow),
            )
    except KeyboardInterrupt:
        pass
    return ExitStatus.FINE


def _show(batches: Iterable[Sequence[JsonObject]], names: "Names") -> None:
    """Print events as they come in, those of one endpoint in a batch together."""
    shown = None
    for batch in batches:
        names.learn(batch)
        for event in by_subject(batch):
            title = names.title(event)
            if title != shown:
                echo(title if shown is None else f"\n{title}")
                shown = title
            echo(fold(event_line(with_words(event)), terminal_width(), hang=_INDENT))


def batches_of(events: Iterable[JsonObject]) -> Iterator[Sequence[JsonObject]]:
    """Yield what happens in some moments."""
    waiting: SimpleQueue[JsonObject | DaemonError | None] = SimpleQueue()

    def read() -> None:
        end = None
        try:
            for event in events:
                waiting.put(event)
        except DaemonError as exc:
            end = exc
        waiting.put(end)

    Thread(target=read, daemon=True).start()
    one = waiting.get()
    while isinstance(one, dict):
        batch = [one]
        ends_s = time.monotonic() + _LONGEST_S
        with suppress(Empty):
            while isinstance(one := waiting.get(timeout=min(_QUIET_S, max(0.0, ends_s - time.monotonic()))), dict):
                batch.append(one)
            yield batch
            break
        yield batch
        one = waiting.get()
    if isinstance(one, DaemonError):
        raise one


class Names:
    """The names of containers and networks."""

    def __init__(self, client: AdminClient, docker_host: str, *, follows: bool) -> None:
        self._follows = follows
        self._ask_again_s = 0.0
        self._noted: set[str] = set()
        self._client = client
        self._docker_host = docker_host
        self._endpoints: dict[str, str] = {}
        self._networks: dict[str, str] = {}
        self._on: dict[str, str] = {}
        self._ask()

    def learn(self, events: Sequence[JsonObject]) -> None:
        """Ask for names if one for these events is not known yet; an event of a plugin does not have its network."""
        self._on |= {subject_of(event): network for event in events if (network := find_str(event, "networkId"))}
        if {*map(subject_of, events)} - {"", *self._endpoints, *self._networks}:
            self._ask()
        phases = {subject_of(event): event["phase"] for event in events if "phase" in event}
        joined = {subject for subject, phase in phases.items() if phase == "joined"}
        for _ in range(_TRIES if self._follows else 0):  # Docker lists it when its process has started
            if joined <= self._endpoints.keys() or time.monotonic() < self._ask_again_s:
                break
            time.sleep(_PAUSE_S)
            self._ask()

    def title(self, event: JsonObject) -> str:
        """Return what an event is about, e.g. `web (0123456789ab) on blue`."""
        subject = subject_of(event)
        if not subject:
            return "cni-bridge"
        network = self._on.get(subject, "")
        on = self._networks.get(network)
        if subject == network:
            return printable(f"network {on or subject[:SHORT]}")
        name = self._endpoints.get(subject)
        named = f"{name} ({subject[:SHORT]})" if name else f"endpoint {subject[:SHORT]}"
        return printable(f"{named} on {on}" if on else named)

    def _ask(self) -> None:
        if time.monotonic() < self._ask_again_s:
            return
        inventory = take_inventory(self._client, self._docker_host, limit_s=_ENGINE_LIMIT_S)
        if inventory.notes:
            self._ask_again_s = time.monotonic() + _UNASKED_S
        for note in {*inventory.notes} - self._noted:
            echo(f"cni-bridge: {note}", err=True)
        self._noted |= {*inventory.notes}
        self._endpoints |= {one: container.name for one, container in inventory.containers.items()}
        self._networks |= inventory.networks


def by_subject(events: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Yield events with those of one endpoint together, in the order of their first ones."""
    blocks: dict[str, list[JsonObject]] = {}
    for event in events:
        blocks.setdefault(subject_of(event), []).append(event)
    for block in blocks.values():
        yield from block


def subject_of(event: JsonObject) -> str:
    """Return the ID of the endpoint that an event (`spec/admin/event.json`) is about, else of the network; or ""."""
    ids = (find_str(event, key) for key in ("endpointId", "containerId", "networkId"))
    return next(filter(None, ids), "")


def with_words(event: JsonObject) -> JsonObject:
    """Return an event (`spec/admin/event.json`) for a reader: a deleted endpoint has the phase `deleted`, not null."""
    is_deleted = event["event"] == "endpoint.phase" and event.get("phase") is None
    return {**event, "phase": "deleted"} if is_deleted else event


def event_line(event: JsonObject) -> str:
    """Return an event as a line: time, name, what happened; 80 columns without addresses and an error."""
    duration, count, outcome = event.get("durationMs"), event.get("count"), find_str(event, "outcome")
    step = (
        " ".join(filter(None, (find_str(event, "plugin"), find_str(event, "verb"))))
        or (find_str(event, "rpc") or "").rpartition(".")[2]
    )
    parts = (
        find_str(event, "phase") or step,
        None if duration is None else f"{float(str(duration)):.0f} ms",
        " ".join(get_strings(event, "addresses")) if "addresses" in event else None,
        None if outcome == "success" else outcome,
        None if count is None else str(count),
        find_str(event, "error"),
    )
    return f"  {str(event['time'])[11:23]}  {event['event']:<15} {printable('  '.join(filter(None, parts)))}"
