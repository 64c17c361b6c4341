# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge inspect`: shows everything about the endpoints of a container."""

from pathlib import Path
from typing import Final

import click

from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.containers import take_inventory
from cnm_bridge.operator.cli.content.inspection import show_inspected
from cnm_bridge.operator.cli.content.listing import with_container
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.fields import templates_have
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.settings.all_settings import DOCKER_HOST
from cnm_bridge.operator.cli.settings.options import with_settings

__all__ = ["inspect"]

_ENDPOINT: Final = (
    *("Id", "Container", "NetworkId", "NetworkName", "Phase", "Mode", "ModeReason", "Configuration", "Internal"),
    *("Addresses", "Mac", "Ports", "NotPublished", "SandboxKey", "CreatedAt", "CniVersion", "ContainerId", "Netns"),
    *("Args", "CapabilityArgs", "List", "Plugins", "Reservation", "Result", "Sync", "Owned", "Teardown"),
)


@click.command("inspect")
@click.argument("name")
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@templates_have(*_ENDPOINT)
@shows
def inspect(socket: Path, *, name: str, docker_host: str) -> tuple[object, ExitStatus]:
    """Show everything about the endpoints of NAME: a container, an address, or the beginning of an ID.

    That is the list of plugins with its arguments, what the plugins returned and how long they took, what was synced
    into the sandbox, and what exists of it on the host. With --format json it includes the list itself, which may
    contain credentials.

    The exit status is 0; 2 if NAME is unknown or has no endpoint; 3 if the daemon does not answer.
    """
    client = AdminClient(socket)
    inventory = take_inventory(client, docker_host)
    documents = [with_container(client.get("endpoints", found), inventory) for found in inventory.find(name)]
    return show_inspected(documents, inventory.notes), ExitStatus.FINE
