# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge check`: compares endpoints with what their plugins made."""

import time
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import JsonObject, get_objects, get_str, get_strings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.command import ASKS, Command
from cnm_bridge.operator.cli.completion import containers
from cnm_bridge.operator.cli.containers import Inventory, take_inventory
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.output.shown import Shown, Table
from cnm_bridge.operator.cli.output.table import SHORT
from cnm_bridge.operator.cli.output.values import count
from cnm_bridge.operator.cli.settings.all_settings import DOCKER_HOST
from cnm_bridge.operator.cli.settings.options import with_settings

_HOST: Final = "host"
_COLUMNS: Final = (("CONTAINER", "container"), ("NETWORK", "network"), ("ABOUT", "about"), ("WHAT", "what"))


@click.command(
    "check",
    cls=Command,
    examples=(
        "check",
        "check web",
        "check --json web",
    ),
    exits={
        ExitStatus.FINE: "Nothing differs.",
        ExitStatus.FINDINGS: "Something differs.",
        **ASKS,
    },
    see_also=("inspect", "status", "cleanup"),
)
@click.argument("name", required=False, shell_complete=containers)
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@shows
def check(socket: Path, *, name: str | None, docker_host: str) -> tuple[Shown, ExitStatus]:
    """Check that containers are still attached as their plugins made it; with NAME, only those endpoints.

    NAME is a container, an address, or the beginning of an ID. Compared are the link in the sandbox, its addresses and
    routes, reservations and iptables rules; and each plugin runs its CHECK, if its list has CNI 0.4.0 or newer. Rules
    of nftables are checked by plugins only, and default routes as far as the container has them.
    """
    client = AdminClient(socket)
    return _check_endpoints(client, take_inventory(client, docker_host), name)


def _check_endpoints(client: AdminClient, inventory: Inventory, name: str | None) -> tuple[Shown, ExitStatus]:
    """Return what differs, and the exit status.

    Args:
        client: Asks the daemon.
        inventory: The endpoints.
        name: What to check, None for all joined endpoints.

    Raises:
        DaemonError: The daemon does not answer, or the name is unknown.
    """
    endpoints = {get_str(one, "id"): one for one in get_objects(inventory.document, "endpoints")}
    joined = [found for found, one in endpoints.items() if one["phase"] == "joined"]
    chosen = joined if name is None else inventory.find(name)
    checked: list[JsonObject] = []
    rows: list[JsonObject] = []
    notes: dict[str, None] = dict.fromkeys(inventory.notes)
    began_s = time.monotonic()
    for endpoint_id in chosen:
        try:
            document = client.get("endpoints", endpoint_id, "check", since=str(began_s))
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
    found: list[Table | str] = [Table(columns=_COLUMNS, rows=rows), _mend(rows)] if rows else []
    shown = Shown(
        document={"endpoints": [*checked]},
        parts=[*found, summary],
        notes=[*notes],
    )
    return shown, ExitStatus.FINDINGS if rows else ExitStatus.FINE


def _mend(rows: list[JsonObject]) -> str:
    """Return how to have everything made anew; a container that would not start again must not be restarted."""
    names = dict.fromkeys(get_str(row, "container") for row in rows)
    lacking = {get_str(row, "container") for row in rows if get_str(row, "about") == _HOST}
    lines = []
    if lacking:
        lines.append(
            f"do: give the host what it lacks first (cni-bridge doctor); without it, {' '.join(sorted(lacking))} would "
            "not start again"
        )
    if restart := " ".join(name for name in names if name not in lacking):
        lines.append(
            f"fix: docker restart {restart}; the plugins then run again. Without a fixed address (--ip) a container "
            "may get another one."
        )
    return "\n".join(lines)
