# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge inspect`: shows everything about the endpoints of a container."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import (
    JsonObject,
    find_int,
    find_object,
    find_str,
    get_bool,
    get_object,
    get_objects,
    get_str,
    get_strings,
    render_json,
)
from cni_invoker.printable import printable
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.command import NO_DAEMON, Command
from cnm_bridge.operator.cli.completion import containers
from cnm_bridge.operator.cli.containers import dynamic_addresses, take_inventory
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.output.shown import Shown, Table
from cnm_bridge.operator.cli.output.values import age, ports_text
from cnm_bridge.operator.cli.settings.all_settings import DOCKER_HOST
from cnm_bridge.operator.cli.settings.options import with_settings

_PLUGINS: Final = (
    *(("PLUGIN", "type"), ("ADDED", "added"), ("LAST ADD", "add"), ("LAST DEL", "del"), ("LAST CHECK", "check")),
)


@click.command(
    "inspect",
    cls=Command,
    examples=(
        "inspect web",
        "inspect 10.22.0.2",
        "inspect --json web",
    ),
    exits={
        ExitStatus.FINE: "It was shown.",
        ExitStatus.USAGE: "NAME is unknown or has no endpoint, or an option is wrong.",
        **NO_DAEMON,
    },
    see_also=("check", "ls"),
)
@click.argument("name", shell_complete=containers)
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@shows
def inspect(socket: Path, *, name: str, docker_host: str) -> tuple[Shown, ExitStatus]:
    """Show everything about the endpoints of NAME: a container, an address, or the beginning of an ID.

    That is the list of plugins with its arguments, what the plugins returned and how long they took, what was synced
    into the sandbox, and what exists of it on the host. With --json it includes the list itself, which may
    contain credentials.
    """
    client = AdminClient(socket)
    inventory = take_inventory(client, docker_host, dynamic=True)
    documents = [inventory.with_container(client.get("endpoints", found)) for found in inventory.find(name)]
    return show_inspected(documents, inventory.notes), ExitStatus.FINE


def show_inspected(documents: Sequence[JsonObject], notes: Sequence[str]) -> Shown:
    """Return what is shown of the documents of some endpoints (`spec/admin/endpoint.json`, with container)."""
    parts = [part for document in documents for part in _parts(document)]
    return Shown(document=[*documents], parts=parts, notes=notes)


def _parts(document: JsonObject) -> Iterator[Table | str]:
    container = find_object(document, "container")
    lines = {
        "endpoint": get_str(document, "id"),
        "container": f"{get_str(container, 'name')} ({get_str(container, 'image')})" if container else "?",
        "network": find_str(document, "networkName") or get_str(document, "networkId"),
        "list": f"{find_str(document, 'configuration')}, CNI {get_str(document, 'cniVersion')}",
        "phase": f"{get_str(document, 'phase')}, created {age(find_int(document, 'createdAt'))} ago",
        "attach mode": ", because ".join(filter(None, (get_str(document, "mode"), find_str(document, "modeReason")))),
        "addresses": ", ".join(
            (*get_strings(document, "addresses"), *(f"{one} (dynamic)" for one in dynamic_addresses(document)))
        ),
        "MAC": find_str(document, "mac") or "",
        "ports": ports_text(get_objects(document, "ports")),
        "not published": find_str(document, "notPublished") or "",
        "sandbox": find_str(document, "sandboxKey") or "",
        "CNI container": get_str(document, "containerId"),
        "CNI args": " ".join(f"{get_str(one, 'key')}={get_str(one, 'value')}" for one in get_objects(document, "args")),
        "capabilities": _json(get_object(document, "capabilityArgs")),
        "teardown": _teardown(document),
    }
    yield "\n".join(f"{name:<14} {printable(value)}" for name, value in lines.items() if value)
    yield Table(columns=_PLUGINS, rows=[_plugin(one) for one in get_objects(document, "plugins")])
    owned = get_object(document, "owned")
    result = find_object(document, "result")
    found = {
        "synced into the sandbox": get_strings(document, "sync"),
        "found on the host": [line for kind in ("reservations", "rules", "links") for line in get_strings(owned, kind)],
        "result of the plugins": [_json(result)] if result else [],
    }
    for title, texts in found.items():
        if texts:
            yield "\n".join((f"{title}:", *(f"  {printable(text)}" for text in texts)))


def _plugin(plugin: JsonObject) -> JsonObject:
    executions = get_object(plugin, "executions")
    last = {
        verb.lower(): _execution(get_object(executions, verb))
        for verb in executions
        if not (verb == "DEL" and _is_before_add(executions))
    }
    return {"type": get_str(plugin, "type"), "added": "yes" if get_bool(plugin, "isAdded") else "no", **last}


def _is_before_add(executions: JsonObject) -> bool:
    """Return whether the last DEL is older than the last ADD: it was an earlier attempt's, and looks like a fault."""
    added, deleted = find_object(executions, "ADD"), find_object(executions, "DEL")
    return added is not None and deleted is not None and get_str(deleted, "time") <= get_str(added, "time")


def _execution(execution: JsonObject) -> str:
    outcome = get_str(execution, "outcome")
    return f"{execution.get('durationMs')} ms{'' if outcome == 'success' else f', {outcome}'}"


def _teardown(document: JsonObject) -> str:
    pending = find_object(document, "teardown")
    if pending is None:
        return ""
    return f"pending, {pending.get('attempts')} failed attempts; {find_str(pending, 'error') or 'no error yet'}"


def _json(value: JsonObject) -> str:
    return render_json(value).decode() if value else ""
