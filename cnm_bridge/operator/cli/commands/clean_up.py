# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge gc`, `retry` and `release`: run what is pending, show what is left, and remove what is named."""

from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import get_objects, get_str
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.content.leftovers import describe, pick, pick_failed, show_left
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.fields import templates_have
from cnm_bridge.operator.cli.output.options import shows

__all__ = ["gc_command", "release", "retry"]

_LEFTOVER: Final = ("Id", "Network", "ContainerId", "What", "ModifiedAt")


@click.command("gc")
@asks_daemon
@templates_have(*_LEFTOVER)
@shows
def gc_command(socket: Path) -> tuple[object, ExitStatus]:
    """Compare records, engine and kernel now, and show what is left: failed teardowns and unowned leftovers.

    This takes some seconds, because only what two comparisons find counts. What is certainly cni-bridge's own is
    removed; the rest may belong to another runtime, and is shown with an ID for `cni-bridge release`. The bridge of the
    plugin bridge (cni0, …) is not a leftover: the plugin never deletes it, because containers share it.

    The exit status is 0 if nothing is left, else 1; 3 if the daemon does not answer.
    """
    return show_left(AdminClient(socket).post("compare"), is_compared=True)


@click.command("retry")
@click.argument("endpoints", metavar="[ENDPOINT]...", nargs=-1)
@asks_daemon
@templates_have(*_LEFTOVER)
@shows
def retry(socket: Path, *, endpoints: tuple[str, ...]) -> tuple[object, ExitStatus]:
    """Run failed teardowns now, all or those of ENDPOINT, and show what is left.

    ENDPOINT is the beginning of an endpoint's ID, as `cni-bridge status` shows it. The daemon repeats failed teardowns
    by itself, at least every five minutes.

    The exit status is 0 if nothing is left, else 1; 2 if ENDPOINT has no failed teardown; 3 if the daemon does not
    answer.
    """
    client = AdminClient(socket)
    if not endpoints:
        return show_left(client.post("retry"))
    failed = client.get("status")
    documents = [client.post("retry", found) for found in pick_failed(failed, endpoints)]
    return show_left(documents[-1])


@click.command("release")
@click.argument("leftovers", metavar="ID...", nargs=-1, required=True)
@asks_daemon
@templates_have(*_LEFTOVER)
@shows
def release(socket: Path, *, leftovers: tuple[str, ...]) -> tuple[object, ExitStatus]:
    """Remove unowned leftovers by the IDs that `cni-bridge gc` shows: reservations of host-local, and iptables rules.

    Before each is removed, it is examined once more: what belongs to an endpoint or is in libcni's cache, and an
    address that any network namespace has, is kept.

    The exit status is 0 if nothing is left, 1 if something is left or was not removed, 2 if an ID is unknown, 3 if the
    daemon does not answer.
    """
    client = AdminClient(socket)
    known = client.get("leftovers")
    described = {get_str(one, "id"): describe(one) for one in get_objects(known, "leftovers")}
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
