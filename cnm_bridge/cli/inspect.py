# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge inspect`: shows everything about the endpoints of a container."""

from pathlib import Path

import click

from cnm_bridge.cli.admin_command import asks_daemon
from cnm_bridge.cli.exit_status import ExitStatus
from cnm_bridge.cli.options import DOCKER_HOST, with_settings
from cnm_bridge.cli.output.options import shows

__all__ = ["inspect"]


@click.command("inspect")
@click.argument("name")
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@shows
def inspect(socket: Path, *, name: str, docker_host: str) -> tuple[object, ExitStatus]:
    """Show everything about the endpoints of NAME: a container, an address, or the beginning of an ID.

    That is the list of plugins with its arguments, what the plugins returned and how long they took, what was synced
    into the sandbox, and what exists of it on the host. With --format json it includes the list itself, which may
    contain credentials.

    Templates have the values of the JSON document, such as {{.Container.Name}}, {{.NetworkName}}, {{json .Result}}.
    """
    from cnm_bridge.cli.admin_client import AdminClient  # noqa: PLC0415 - slow, and would delay `serve`
    from cnm_bridge.cli.containers import take_inventory  # noqa: PLC0415
    from cnm_bridge.cli.inspection import show_inspected  # noqa: PLC0415
    from cnm_bridge.cli.listing import with_container  # noqa: PLC0415

    client = AdminClient(socket)
    inventory = take_inventory(client, docker_host)
    documents = [with_container(client.get("endpoints", found), inventory) for found in inventory.find(name)]
    return show_inspected(documents, inventory.notes), ExitStatus.FINE
