# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge gc`, `retry` and `release`: run what is pending, show what is left, and remove what is named."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import JsonObject, find_int, get_bool, get_objects, get_str
from cni_invoker.printable import printable
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.command import ASKS, NO_DAEMON, Command
from cnm_bridge.operator.cli.completion import failed_teardowns, leftover_ids
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.output.shown import Shown, Table
from cnm_bridge.operator.cli.output.table import SHORT
from cnm_bridge.operator.cli.output.values import age

_TEARDOWNS: Final = (("PENDING TEARDOWN", "endpointId"), ("ATTEMPTS", "attempts"), ("LAST ERROR", "error"))
_LEFTOVERS: Final = (
    *(("LEFTOVER", "id"), ("NETWORK", "network"), ("CONTAINER ID", "containerId"), ("AGE", "age"), ("WHAT", "what")),
)
_EXAMINED: Final = (
    "Examined: the engine of --docker-host does not have these addresses. They may be another engine's.\n"
    "`release` keeps an address that a container of this host has. If no engine has them: cni-bridge release "
)


@click.command(
    "gc",
    cls=Command,
    examples=(
        "gc",
        "gc --json",
    ),
    exits={
        ExitStatus.FINE: "Nothing is left.",
        ExitStatus.FINDINGS: "Something is left.",
        **ASKS,
    },
    see_also=("release", "retry", "status"),
)
@asks_daemon
@shows
def gc_command(socket: Path) -> tuple[Shown, ExitStatus]:
    """Compare records, engine and kernel now, and show what is left: failed teardowns and unclaimed addresses.

    This takes some seconds, because only what two comparisons find counts. What is cni-bridge's own is removed. An
    address of the IPAM driver that may be another engine's is shown with an ID for `cni-bridge release`.
    """
    return show_left(AdminClient(socket).post("compare"), is_compared=True)


@click.command(
    "retry",
    cls=Command,
    examples=(
        "retry",
        "retry 77ad0a1b2c3d",
    ),
    exits={
        ExitStatus.FINE: "Nothing is left.",
        ExitStatus.FINDINGS: "Something is left.",
        ExitStatus.USAGE: "ENDPOINT has no failed teardown, or an option is wrong.",
        **NO_DAEMON,
    },
    see_also=("status", "gc"),
)
@click.argument("endpoints", metavar="[ENDPOINT]...", nargs=-1, shell_complete=failed_teardowns)
@asks_daemon
@shows
def retry(socket: Path, *, endpoints: tuple[str, ...]) -> tuple[Shown, ExitStatus]:
    """Run failed teardowns now, all or those of ENDPOINT, and show what is left.

    ENDPOINT is the beginning of an endpoint's ID, as `cni-bridge status` shows it. The daemon repeats failed teardowns
    by itself, at least every five minutes.
    """
    client = AdminClient(socket)
    if not endpoints:
        return show_left(client.post("retry"))
    failed = client.get("status")
    documents = [client.post("retry", found) for found in pick_failed(failed, endpoints)]
    return show_left(documents[-1])


@click.command(
    "release",
    cls=Command,
    examples=(
        "gc",
        "release 5e0f2a",
    ),
    exits={
        ExitStatus.FINE: "Nothing is left.",
        ExitStatus.FINDINGS: "Something is left, or was not removed.",
        **ASKS,
    },
    see_also=("gc", "ls"),
)
@click.argument("leftovers", metavar="ID...", nargs=-1, required=True, shell_complete=leftover_ids)
@asks_daemon
@shows
def release(socket: Path, *, leftovers: tuple[str, ...]) -> tuple[Shown, ExitStatus]:
    """Release unclaimed addresses by the IDs that `cni-bridge gc` shows.

    An address that a container of this host has is kept.
    """
    client = AdminClient(socket)
    known = client.get("leftovers")
    described = {get_str(one, "id"): get_str(one, "what") for one in get_objects(known, "leftovers")}
    removed: list[str] = []
    document = known
    for chosen in pick(known, "leftovers", "id", leftovers):
        try:
            document = client.post("leftovers", chosen, "release")
        except DaemonError as exc:
            if removed:
                raise DaemonError(f"{exc}; removed before that: {', '.join(removed)}", exc.exit_status) from exc
            raise
        removed.append(described[chosen])
    return show_left(document, removed=removed)


def show_left(
    document: JsonObject, *, is_compared: bool = False, removed: Sequence[str] = ()
) -> tuple[Shown, ExitStatus]:
    """Return what is shown of `spec/admin/leftovers.json`, and the exit status.

    Args:
        document: The document.
        is_compared: Whether it is the result of a comparison, which needs the engine.
        removed: What has just been removed.
    """
    teardowns, leftovers = get_objects(document, "pendingTeardowns"), get_objects(document, "leftovers")
    parts: list[Table | str] = ["\n".join(f"released {printable(what)}" for what in removed)] if removed else []
    if teardowns:
        parts.append(Table(columns=_TEARDOWNS, rows=teardowns))
    if leftovers:
        aged: list[JsonObject] = [{**one, "age": _age(one)} for one in leftovers]
        parts.append(Table(columns=_LEFTOVERS, rows=aged))
        parts.append(_EXAMINED + " ".join(get_str(one, "id") for one in leftovers))
    if not teardowns and not leftovers:
        parts.append("nothing is left")
    notes = []
    if is_compared and not get_bool(document, "isEngineUp"):
        notes.append("the engine does not answer, so nothing was compared with it")
    if not get_bool(document, "isComplete"):
        notes.append("the comparison has not ended yet; run the command again later")
    shown = Shown(document=document, parts=parts, notes=notes)
    return shown, ExitStatus.FINDINGS if teardowns or leftovers or notes else ExitStatus.FINE


def pick_failed(status: JsonObject, prefixes: Sequence[str]) -> Sequence[str]:
    """Return the IDs of endpoints with a failed teardown that begin with the given texts, as `pick` does.

    Raises:
        DaemonError: As `pick`; it names an endpoint that exists and has no failed teardown.
    """
    failed = {get_str(one, "endpointId") for one in get_objects(status, "pendingTeardowns")}
    endpoints = [get_str(one, "id") for one in get_objects(status, "endpoints")]
    for prefix in prefixes:
        fine = [one for one in endpoints if one.startswith(prefix) and one not in failed]
        if fine and not any(one.startswith(prefix) for one in failed):
            raise DaemonError(
                f"endpoint {fine[0][:SHORT]} has no failed teardown; nothing has been changed", ExitStatus.USAGE
            )
    return pick(status, "pendingTeardowns", "endpointId", prefixes)


def _age(leftover: JsonObject) -> str | None:
    modified_at = find_int(leftover, "modifiedAt")
    return None if modified_at is None else age(modified_at)


def pick(document: JsonObject, key: str, name: str, prefixes: Sequence[str]) -> Sequence[str]:
    """Return the IDs in a list of a document that begin with the given texts, each exactly once.

    Raises:
        DaemonError: A text is the beginning of no ID, or of several.
    """
    ids = [get_str(one, name) for one in get_objects(document, key)]
    found: dict[str, None] = {}
    for prefix in prefixes:
        matching = [one for one in ids if one.startswith(prefix)]
        if len(matching) != 1:
            known = f"known are {', '.join(one[:12] for one in ids)}" if ids else "there are none"
            what = "ambiguous" if matching else "unknown"
            raise DaemonError(f"{prefix} is {what}: {known}; nothing has been changed", ExitStatus.USAGE)
        found[matching[0]] = None
    return tuple(found)
