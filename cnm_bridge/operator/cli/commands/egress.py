# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge egress`: what containers of guarded networks reach.

The command `cni-egress` knows what is in force, by the names of CNI lists and the IDs of endpoints. Here Docker's names
of networks and containers are put in their place, and changes are written into the list.
"""

import asyncio
import textwrap
from collections.abc import Callable, Sequence
from typing import Final

import click

from cni_bridge_spec import (
    JsonObject,
    JsonValue,
    as_object,
    find_str,
    get_int,
    get_list,
    get_objects,
    get_str,
    get_strings,
    render_json,
)
from cni_invoker.documents.printable import printable
from cnm_bridge.core.errors import Refused, UnknownName
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.command import Command, CommandGroup, ExitStatus
from cnm_bridge.operator.cli.containers import Inventory, take_inventory
from cnm_bridge.operator.cli.daemon_settings import asks_daemon, finds_settings
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.output import SHORT, UNKNOWN, Shown, Table, count, duration, shows, with_json
from cnm_bridge.operator.egress import ask_egress, follow_egress, list_egress
from cnm_bridge.operator.networks.allow_list import AllowList, find_allow_list


class GuardedNames:
    """Docker's names of networks and containers."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self._endpoints = {
            find_str(endpoint, "containerId") or get_str(endpoint, "id"): endpoint
            for endpoint in get_objects(inventory.document, "endpoints")
        }

    def configuration(self, network: str) -> str:
        """Return the name of the list of a network; errors as in `Inventory.find_network`."""
        network_id = self.inventory.find_network(network)
        documents = {get_str(one, "id"): one for one in get_objects(self.inventory.document, "networks")}
        return find_str(documents[network_id], "configuration") or self.inventory.networks[network_id]

    def network_of(self, container_id: str) -> str:
        """Return the name of the network of a CNI container; empty for one of another runtime."""
        endpoint = self._endpoints.get(container_id)
        return "" if endpoint is None else self.inventory.networks[get_str(endpoint, "networkId")]

    def container(self, container_id: str) -> str:
        """Return the name of a CNI container, or the beginning of its ID; `UNKNOWN` without an ID."""
        endpoint = self._endpoints.get(container_id, {"id": container_id})
        found = self.inventory.containers.get(get_str(endpoint, "id"))
        return found.name if found is not None else container_id[:SHORT] or UNKNOWN

    def find(self, name: str) -> tuple[str, ...]:
        """Return the IDs of the guarded CNI containers that a name, an address or an ID stands for.

        Raises:
            UnknownName: There are none.
        """
        guarded = {get_str(it, "containerId") for one in list_egress("ls") for it in get_objects(one, "attachments")}
        named = self.inventory.find(name)
        found = tuple(one for one, endpoint in self._endpoints.items() if endpoint["id"] in named and one in guarded)
        if not found:
            raise UnknownName(f"{name} is on no guarded network; `cni-bridge egress ls` shows all")
        return found


_WIDTH: Final = 80
_CONTAINERS: Final = (
    *(("CONTAINER", "container"), ("ADDRESSES", "addresses"), ("OPEN", "open"), ("CONNECTIONS", "connections")),
    *(("REFUSED", "refused"), ("ALSO ALLOWED", "allow")),
)
_OPENED: Final = (
    *(("CONTAINER", "container"), ("NAME", "name"), ("ADDRESS", "address"), ("PORTS", "ports"), ("LEFT", "left")),
)
_REACHED: Final = (
    *(("CONTAINER", "container"), ("NAME", "name"), ("ADDRESS", "address"), ("PORT", "port")),
    ("CONNECTIONS", "connections"),
)


@click.group(
    "egress",
    cls=CommandGroup,
    examples=("egress ls agents", "egress allow agents files.example.com", "egress check web api.example.com:443"),
)
def egress() -> None:
    """Show and change what containers of guarded networks reach."""


@egress.command(
    "ls",
    cls=Command,
    examples=("egress ls", "egress ls agents"),
)
@click.argument("network", required=False)
@asks_daemon("docker_host")
@shows
def ls(settings: Settings, *, network: str | None) -> tuple[Shown, ExitStatus]:
    """Show policies, containers, how many addresses names have opened, connections, and lines of the log.

    Connections are those that the kernel tracks: they go on, or ended minutes ago at most. With NETWORK the
    addresses are shown as well, how long they stay open for new connections, and where the connections went.
    """
    names = _ask_names(settings)
    configuration = [] if network is None else ["--network", names.configuration(network)]
    return show_policies(names, list_egress("ls", *configuration), network), ExitStatus.FINE


def show_policies(names: GuardedNames, listed: Sequence[JsonObject], network: str | None) -> Shown:
    """Return what `cni-egress ls` has listed, by Docker's networks; of one network with all that is open."""
    parts: list[Table | str] = []
    documents: list[JsonValue] = []
    for one in listed:
        groups: dict[str, list[JsonObject]] = {}
        for attachment in get_objects(one, "attachments"):
            container_id = get_str(attachment, "containerId")
            name = names.network_of(container_id) or f"{one['network']} (of another runtime)"
            groups.setdefault(name, []).append({**attachment, "container": names.container(container_id)})
        for name, rows in groups.items():
            if network in {None, name}:
                documents.append({**one, "network": name, "configuration": one["network"], "attachments": [*rows]})
                parts += _show_network(name, one, rows, with_open=network is not None)
    text = "No container is on a guarded network" + ("." if network is None else f" {network}.")
    return Shown(document=documents, parts=parts or [text], notes=names.inventory.notes)


def _show_network(name: str, network: JsonObject, rows: Sequence[JsonObject], *, with_open: bool) -> list[Table | str]:
    """Return the policy and the containers of a network; with `with_open` what names have opened, and connections."""
    entries = ", ".join(get_strings(network, "allow")) or "nothing"
    audit = " Everything else passes, too, and is logged." if network.get("audit") is True else ""
    text = textwrap.fill(f"{name} allows {entries}.{audit}", _WIDTH, break_on_hyphens=False, break_long_words=False)
    shown = [
        {
            **row,
            "addresses": " ".join(get_strings(row, "addresses")),
            "open": len(get_list(row, "open")),
            "connections": sum(get_int(to, "connections") for to in get_objects(row, "reached")),
            "allow": " ".join(get_strings(row, "allow")),
        }
        for row in rows
    ]
    columns = _CONTAINERS if any(row["allow"] for row in shown) else _CONTAINERS[:-1]
    opened: list[JsonObject] = [
        {
            **use,
            "container": row["container"],
            "ports": " ".join(get_strings(use, "ports")),
            "left": duration(int(str(use["seconds"]))),
        }
        for row in rows
        for use in get_objects(row, "open")
    ]
    tables = [Table(columns=columns, rows=shown, optional=("allow",))]
    if with_open and opened:
        tables.append(Table(columns=_OPENED, rows=opened, optional=("ports",)))
    reached: list[JsonObject] = [
        {**to, "container": row["container"]} for row in rows for to in get_objects(row, "reached")
    ]
    if with_open and reached:
        tables.append(Table(columns=_REACHED, rows=reached))
    return [text, *tables]


@egress.command(
    "log",
    cls=Command,
    examples=("egress log agents", "egress log --follow"),
)
@click.argument("network", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on with what is refused from now on, until Ctrl-C.")
@asks_daemon("docker_host")
@with_json
def log(settings: Settings, *, network: str | None, follow: bool, as_json: bool) -> ExitStatus:
    """Show what containers were refused, oldest first: names, addresses, connections.

    The kernel logs a connection to the same destination twice a minute at most. With --json each line is a JSON object.
    """
    names = _ask_names(settings)
    own = [] if network is None else ["--network", names.configuration(network)]
    try:
        for line in follow_egress("log", *own, *(["--follow"] if follow else [])):
            container = names.container(find_str(line, "container") or "")
            echo(render_json({**line, "containerName": container}).decode() if as_json else _log_line(line, container))
    except KeyboardInterrupt:
        pass
    return ExitStatus.FINE


def _log_line(line: JsonObject, container: str) -> str:
    """Return a line of the log: time, container, where to, why."""
    address = find_str(line, "address") or ""
    port = f":{line['port']}" if "port" in line else ""
    to = f"[{address}]{port}" if port and ":" in address else f"{address}{port}"
    where = " ".join(filter(None, (find_str(line, "name"), to, find_str(line, "protocol"))))
    passed = " (passed)" if line.get("audit") is True else ""
    who = container if container != UNKNOWN else find_str(line, "source") or container
    return printable(f"{get_str(line, 'time')[:19]}  {who}  {where}  {find_str(line, 'why')}{passed}")


def _changes_list(name: str, text: str) -> Callable[..., click.Command]:
    """Return what makes a command of a function that gets the network's name, entries and allow-list."""

    def decorate(change: Callable[[str, tuple[str, ...], AllowList], Shown]) -> click.Command:
        @egress.command(
            name,
            cls=Command,
            examples=(f"egress {name} agents files.example.com",),
            help=text,
        )
        @click.argument("network")
        @click.argument("entries", metavar="ENTRY...", nargs=-1, required=True)
        @finds_settings
        @shows
        def run(settings: Settings, *, network: str, entries: tuple[str, ...]) -> tuple[Shown, ExitStatus]:
            return change(network, entries, asyncio.run(find_allow_list(settings, network))), ExitStatus.FINE

        return run

    return decorate


@_changes_list(
    "allow",
    "Allow entries to all containers of NETWORK, those that run and those that come.\n\n"
    "The entries are written into the network's list, and are in force when the command ends.",
)
def _allow(network: str, entries: tuple[str, ...], known: AllowList) -> Shown:
    done = known.change(known.added(entries), lambda: ask_egress("allow", known.configuration, *entries))
    return _show_change(network, known, "added", len(known.added(entries)) - len(known.entries), done)


@_changes_list(
    "deny",
    "Remove entries from what containers of NETWORK reach, those that run and those that come.\n\n"
    "Connections that nothing else allows have ended when the command ends.",
)
def _deny(network: str, entries: tuple[str, ...], known: AllowList) -> Shown:
    policies = list_egress("ls", "--network", known.configuration)
    own = [attachment for policy in policies for attachment in get_objects(policy, "attachments")]
    live = {entry.lower() for one in (*policies, *own) for entry in get_strings(one, "allow")}
    listed_entries = {entry.lower() for entry in known.entries}
    unknown = [entry for entry in entries if entry.lower() not in live | listed_entries and not entry.startswith("@")]
    if unknown:
        has = ", ".join(known.entries[:10]) or "no entry"
        raise Refused(f"{unknown[0]} is not in the allow-list of {network}, which has {has}; nothing was changed")
    in_force = [entry for entry in entries if entry.lower() in live or entry.startswith("@")]
    done = known.change(
        known.removed(entries), lambda: ask_egress("deny", known.configuration, *in_force) if in_force else {}
    )
    return _show_change(network, known, "removed", len(known.entries) - len(known.removed(entries)), done)


def _show_change(network: str, known: AllowList, verb: str, number: int, done: JsonValue) -> Shown:
    answer = as_object(done, "the answer")
    changed = len(get_list(answer, "changed")) if answer else 0
    lines = [
        f"{verb} {number} {'entry' if number == 1 else 'entries'}: {known.file}",
        f"in force for {count(changed, 'running container')} of {network}",
    ]
    document: JsonObject = {"network": network, "file": str(known.file), verb: number, "containers": changed}
    return Shown(document=document, parts=["\n".join(lines)], notes=get_strings(answer, "notes") if answer else ())


@egress.command(
    "check",
    cls=Command,
    examples=("egress check web api.example.com:443", "egress check web 10.0.5.7:53/udp"),
)
@click.argument("container")
@click.argument("destination", metavar="DESTINATION:PORT[/PROTOCOL]")
@asks_daemon("docker_host")
@shows
def check(settings: Settings, *, container: str, destination: str) -> tuple[Shown, ExitStatus]:
    """Ask the kernel's tables whether CONTAINER may connect to DESTINATION, a name or an address.

    A container on several guarded networks may, if one of them allows it.
    """
    names = _ask_names(settings)
    answers = [
        as_object(ask_egress("check", one, destination, expected=(0, 1)), "the answer") for one in names.find(container)
    ]
    lines = []
    for one in answers:
        verdict = "allowed" if one["allowed"] is True else "refused"
        lines.append(f"{verdict}: {container} to {destination} on {names.network_of(get_str(one, 'containerId'))}")
        lines.append(f"  {get_str(one, 'why')}")
        lines += [f"  open: {it['address']} for {duration(int(str(it['seconds'])))}" for it in get_objects(one, "open")]
    is_allowed = any(one["allowed"] is True for one in answers)
    shown = Shown(document=[*answers], parts=["\n".join(lines)], notes=names.inventory.notes)
    return shown, ExitStatus.FINE if is_allowed else ExitStatus.FINDINGS


@egress.command(
    "learn",
    cls=Command,
    examples=("egress learn probe",),
)
@click.argument("network")
@asks_daemon("docker_host")
@shows
def learn(settings: Settings, *, network: str) -> tuple[Shown, ExitStatus]:
    """Print as --allow options what containers of NETWORK, which only watches (--audit), have reached."""
    names = _ask_names(settings)
    entries = ask_egress("learn", names.configuration(network))
    lines = [f"--allow {entry}" for entry in entries] if isinstance(entries, list) else []
    text = "\n".join(lines) or f"The log has nothing of {network} that passed because of --audit."
    return Shown(document=entries, parts=[text]), ExitStatus.FINE


def _ask_names(settings: Settings) -> GuardedNames:
    return GuardedNames(take_inventory(AdminClient(settings.admin_path), settings.docker_host))
