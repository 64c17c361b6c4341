# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge inspect`: shows the endpoints of a container, or compares endpoints with what their plugins made."""

import json
from collections.abc import Container, Iterator, Sequence
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
)
from cni_invoker.documents.printable import printable
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.containers import Inventory, dynamic_addresses, take_inventory
from cnm_bridge.operator.cli.daemon_settings import asks_daemon
from cnm_bridge.operator.cli.output import SHORT, Prose, Shown, Table, age, count, ports_text, shows

_PLUGINS: Final = (
    *(("PLUGIN", "type"), ("ADDED", "added"), ("LAST ADD", "add"), ("LAST DEL", "del"), ("LAST CHECK", "check")),
)
_DIFFERENCES: Final = (("CONTAINER", "container"), ("NETWORK", "network"), ("ABOUT", "about"), ("WHAT", "what"))
_COUNTED: Final = frozenset({"rule", "reservation", "link"})
"""What is counted without --rules: what the host has for the container."""
_HOST: Final = "host"
"""What a difference is about if the host lacks something that the plugins need."""


@click.command(
    "inspect",
    cls=Command,
    examples=(
        "inspect web",
        "inspect --rules 10.22.0.2",
        "inspect --check web",
        "inspect --check",
        "inspect --json web",
    ),
)
@click.option("--check", is_flag=True, help="Show only what differs from what the plugins made; without NAME, of all.")
@click.option("--rules", is_flag=True, help="Show also rules, arguments of plugins, and what was synced.")
@click.argument("name", required=False)
@asks_daemon("docker_host")
@shows
def inspect(settings: Settings, *, check: bool, rules: bool, name: str | None) -> tuple[Shown, ExitStatus]:
    """Show the endpoints of NAME, or with --check what differs from what their plugins made.

    NAME is a container, an address, or the beginning of an ID.

    --check compares the link in the sandbox, its addresses and routes, reservations and iptables rules. Plugins run
    CHECK, if the list has CNI 0.4.0 or newer. Rules of nftables are checked by plugins only, and default routes as
    far as the container has them.

    --json has everything, the list included, which may contain credentials.
    """
    client = AdminClient(settings.admin_path)
    if check:
        return _check(client, take_inventory(client, settings.docker_host), name)
    if name is None:
        raise click.UsageError("NAME is missing; `cni-bridge ls` shows all containers, and --check compares all")
    inventory = take_inventory(client, settings.docker_host, dynamic=True)
    documents = [inventory.with_container(client.get("endpoints", found)) for found in inventory.find(name)]
    return show_inspected(documents, inventory.notes, with_rules=rules), ExitStatus.FINE


def show_inspected(documents: Sequence[JsonObject], notes: Sequence[str], *, with_rules: bool = False) -> Shown:
    """Return what is shown of the documents of some endpoints (`spec/admin/endpoint.json`, with container)."""
    parts = [part for document in documents for part in _parts(document, with_rules=with_rules)]
    return Shown(document=[*documents], parts=parts, notes=notes)


def _parts(document: JsonObject, *, with_rules: bool) -> Iterator[Table | Prose | str]:
    container = find_object(document, "container")
    pending = find_object(document, "teardown") or {}
    teardown = f"pending, {pending.get('attempts')} failed attempts; {find_str(pending, 'error') or 'no error yet'}"
    result = find_object(document, "result") or {}
    further = _further(document)
    counts = ", ".join(count(len(texts), noun) for noun, texts in further.items() if texts and noun in _COUNTED)
    lines = {
        "container": f"{get_str(container, 'name')} ({get_str(container, 'image')})" if container else "?",
        "network": find_str(document, "networkName") or get_str(document, "networkId"),
        "addresses": ", ".join(
            (*get_strings(document, "addresses"), *(f"{address} (dynamic)" for address in dynamic_addresses(document)))
        ),
        "gateway": ", ".join(dict.fromkeys(filter(None, (find_str(one, "gateway") for one in _listed(result, "ips"))))),
        "routes": ", ".join(map(_route, _listed(result, "routes"))),
        "ports": ports_text(get_objects(document, "ports")),
        "not published": find_str(document, "notPublished") or "",
        "MAC": find_str(document, "mac") or "",
        "mode": ", because ".join(filter(None, (get_str(document, "mode"), find_str(document, "modeReason")))),
        "age": f"{age(find_int(document, 'createdAt'))}, {get_str(document, 'phase')}",
        "list": f"{find_str(document, 'configuration')}, CNI {get_str(document, 'cniVersion')}",
        "teardown": teardown if pending else "",
        "endpoint": get_str(document, "id") if with_rules else get_str(document, "id")[:SHORT],
        "sandbox": find_str(document, "sandboxKey") or "" if with_rules else "",
        "further": "" if with_rules or not counts else f"{counts}; --rules shows them",
    }
    yield Prose(lines=[f"{name:<14} {value}" for name, value in lines.items() if value], hang=15)
    yield Table(columns=_PLUGINS, rows=[_plugin(plugin) for plugin in get_objects(document, "plugins")])
    for title, texts in further.items() if with_rules else ():
        if texts:
            yield "\n".join((f"{count(len(texts), title)}:", *(f"  {printable(text)}" for text in texts)))


def _further(document: JsonObject) -> dict[str, Sequence[str]]:
    """Return what few need to see, by what it is."""
    owned = get_object(document, "owned")
    return {
        "rule": get_strings(owned, "rules"),
        "reservation": get_strings(owned, "reservations"),
        "link": get_strings(owned, "links"),
        "sandbox change": get_strings(document, "sync"),
        "argument": [
            f"CNI_CONTAINERID {get_str(document, 'containerId')}",
            *(f"CNI_ARGS {get_str(one, 'key')}={get_str(one, 'value')}" for one in get_objects(document, "args")),
            *(
                f"runtimeConfig {key} {json.dumps(value)}"
                for key, value in get_object(document, "capabilityArgs").items()
            ),
        ],
    }


def _listed(result: JsonObject, key: str) -> Sequence[JsonObject]:
    return get_objects(result, key) if result.get(key) else ()


def _route(route: JsonObject) -> str:
    gateway = find_str(route, "gw")
    return f"{get_str(route, 'dst')}{f' via {gateway}' if gateway else ''}"


def _plugin(plugin: JsonObject) -> JsonObject:
    executions = get_object(plugin, "executions")
    added, deleted = find_object(executions, "ADD"), find_object(executions, "DEL")
    # A DEL that is older than the last ADD was an earlier attempt's, and would look like a fault.
    is_old = added is not None and deleted is not None and get_str(deleted, "time") <= get_str(added, "time")
    last = {
        verb.lower(): _execution(get_object(executions, verb)) for verb in executions if not (verb == "DEL" and is_old)
    }
    return {"type": get_str(plugin, "type"), "added": "yes" if get_bool(plugin, "isAdded") else "no", **last}


def _execution(execution: JsonObject) -> str:
    outcome = get_str(execution, "outcome")
    return f"{execution.get('durationMs')} ms{'' if outcome == 'success' else f', {outcome}'}"


def _check(client: AdminClient, inventory: Inventory, name: str | None) -> tuple[Shown, ExitStatus]:
    """Return what differs, and the exit status.

    Raises:
        DaemonError: The daemon does not answer, or the name is unknown.
    """
    endpoints = {get_str(endpoint, "id"): endpoint for endpoint in get_objects(inventory.document, "endpoints")}
    joined = [found for found, one in endpoints.items() if one["phase"] == "joined"]
    checked: list[JsonObject] = []
    rows: list[JsonObject] = []
    notes: dict[str, None] = dict.fromkeys(inventory.notes)
    for endpoint_id in joined if name is None else inventory.find(name):
        try:
            document = client.get("endpoints", endpoint_id, "check")
        except DaemonError as exc:
            if exc.exit_status is ExitStatus.USAGE and name is None:  # it was removed meanwhile
                continue
            raise
        container = inventory.containers.get(endpoint_id)
        labels = {
            "container": container.name if container else endpoint_id[:SHORT],
            "network": inventory.networks.get(get_str(endpoints[endpoint_id], "networkId"), "?"),
        }
        checked.append({**labels, **document})
        rows += [{**labels, **finding} for finding in get_objects(document, "findings")]
        notes |= {f"{labels['container']}: {note}": None for note in get_strings(document, "notes")}
    summary = f"{count(len(checked), 'endpoint')} checked, {count(len(rows), 'difference')}"
    known = frozenset(container.name for container in inventory.containers.values())
    found: list[Table | str] = [Table(columns=_DIFFERENCES, rows=rows), mend(rows, known)] if rows else []
    shown = Shown(document={"endpoints": [*checked]}, parts=[*found, summary], notes=[*notes])
    return shown, ExitStatus.FINDINGS if rows else ExitStatus.FINE


def mend(rows: Sequence[JsonObject], known: Container[str]) -> str:
    """Return how to have everything made anew; a container that would not start again must not be restarted.

    Nor can one whose name is not known: Docker may have lost it, and the daemon has not noticed.
    """
    names = dict.fromkeys(get_str(row, "container") for row in rows)
    lacking = {get_str(row, "container") for row in rows if get_str(row, "about") == _HOST}
    lines = []
    if unknown := " ".join(name for name in names if name not in known):
        lines.append(
            f"do: cni-bridge cleanup --run; it removes what Docker has lost. The container of {unknown} is not known"
        )
    if lacking:
        lines.append(
            f"do: give the host what it lacks first (cni-bridge doctor); without it, {' '.join(sorted(lacking))} would "
            "not start again"
        )
    if restart := " ".join(name for name in names if name in known and name not in lacking):
        lines.append(
            f"fix: docker restart {restart}; the plugins then run again. Without a fixed address (--ip) a container "
            "may get another one."
        )
    return "\n".join(lines)
