# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge cleanup`: shows unclaimed addresses and pending teardowns; with --run it cleans up."""

from collections.abc import Sequence
from typing import Final

import click

from cni_bridge_spec import JsonObject, find_int, get_bool, get_objects, get_str
from cni_invoker.documents.printable import printable
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.daemon_settings import asks_daemon
from cnm_bridge.operator.cli.output import SHORT, Shown, Table, age, shows

AFTER_FAILURE: Final = (
    "do: remove the cause, e.g. install a plugin that is missing, then cni-bridge cleanup --run, or wait five minutes"
)
"""What to do about failed teardowns."""
_TEARDOWNS: Final = (("PENDING TEARDOWN", "endpointId"), ("ATTEMPTS", "attempts"), ("LAST ERROR", "error"))
_ADDRESSES: Final = (("UNCLAIMED", "id"), ("NETWORK", "network"), ("AGE", "age"), ("WHAT", "what"))
_EXAMINED: Final = (
    "The engine of --docker-host does not have these addresses. They may be another engine's. An address that a\n"
    "container of this host has is kept. If no engine has them: cni-bridge cleanup --run "
)


@click.command(
    "cleanup",
    cls=Command,
    examples=("cleanup", "cleanup --run", "cleanup --run 77ad0a1b2c3d"),
)
@click.option("--run", "is_run", is_flag=True, help="Clean up; with ID, only what has one of these IDs.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@asks_daemon()
@shows
def cleanup(settings: Settings, *, is_run: bool, ids: tuple[str, ...]) -> tuple[Shown, ExitStatus]:
    """Show failed teardowns and unclaimed addresses; with --run, clean up.

    --run compares records, engine and kernel, and runs failed teardowns again. The daemon does both by itself, at least
    every five minutes. It takes some seconds, because only what two comparisons find counts.

    An unclaimed address is one of the IPAM driver that may be another engine's. It is released only by its ID, and kept
    if a container of this host has it. The beginning of an ID will do.
    """
    if ids and not is_run:
        raise click.UsageError("ID needs --run; without it nothing is changed")
    client = AdminClient(settings.admin_path)
    left = client.get("cleanup")
    if not is_run:
        return show_left(left)
    if ids:
        return _clean_up(client, left, ids)
    compared = client.post("compare")
    left = client.post("retry") if get_objects(compared, "pendingTeardowns") else compared
    return show_left({**left, "isComplete": get_bool(compared, "isComplete")}, is_compared=True)


def _clean_up(client: AdminClient, left: JsonObject, prefixes: Sequence[str]) -> tuple[Shown, ExitStatus]:
    """Run the failed teardowns and release the addresses whose IDs begin with the given texts."""
    addresses = {get_str(one, "id"): get_str(one, "what") for one in get_objects(left, "unclaimedAddresses")}
    teardowns = [get_str(one, "endpointId") for one in get_objects(left, "pendingTeardowns")]
    released: list[str] = []
    for chosen in pick((*teardowns, *addresses), prefixes):
        if chosen not in addresses:
            left = client.post("retry", chosen)
            continue
        try:
            left = client.post("addresses", chosen, "release")
        except DaemonError as exc:
            if released:
                raise DaemonError(f"{exc}; released before that: {', '.join(released)}", exc.exit_status) from exc
            raise
        released.append(addresses[chosen])
    return show_left(left, released=released)


def show_left(
    document: JsonObject, *, is_compared: bool = False, released: Sequence[str] = ()
) -> tuple[Shown, ExitStatus]:
    """Return what is shown of `spec/admin/cleanup.json`, and the exit status; `is_compared`: it needs the engine."""
    teardowns, addresses = get_objects(document, "pendingTeardowns"), get_objects(document, "unclaimedAddresses")
    parts: list[Table | str] = ["\n".join(f"released {printable(what)}" for what in released)] if released else []
    if teardowns:
        parts += [Table(columns=_TEARDOWNS, rows=teardowns), AFTER_FAILURE]
    if addresses:
        aged: list[JsonObject] = [{**address, "age": _age(address)} for address in addresses]
        parts.append(Table(columns=_ADDRESSES, rows=aged))
        parts.append(_EXAMINED + " ".join(get_str(address, "id")[:SHORT] for address in addresses))
    if not teardowns and not addresses:
        parts.append("nothing is left")
    notes = []
    if is_compared and not get_bool(document, "isEngineUp"):
        notes.append("the engine does not answer, so nothing was compared with it")
    if not get_bool(document, "isComplete"):
        notes.append("the comparison has not ended yet; run the command again later")
    shown = Shown(document=document, parts=parts, notes=notes)
    return shown, ExitStatus.FINDINGS if teardowns or addresses or notes else ExitStatus.FINE


def _age(address: JsonObject) -> str | None:
    modified_at = find_int(address, "modifiedAt")
    return None if modified_at is None else age(modified_at)


def pick(ids: Sequence[str], prefixes: Sequence[str]) -> Sequence[str]:
    """Return the IDs that begin with the given texts, each exactly once.

    Raises:
        DaemonError: A text is the beginning of no ID, or of several.
    """
    found: dict[str, None] = {}
    for prefix in prefixes:
        matching = [one for one in ids if one.startswith(prefix)]
        if len(matching) != 1:
            known = f"known are {', '.join(one[:SHORT] for one in ids)}" if ids else "nothing is left"
            what = "is ambiguous" if matching else "is neither a failed teardown nor an unclaimed address"
            raise DaemonError(f"{prefix} {what}: {known}; nothing has been changed", ExitStatus.USAGE)
        found[matching[0]] = None
    return tuple(found)
