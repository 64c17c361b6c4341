# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge ls`: lists the endpoints with their containers, or the networks."""

from pathlib import Path
from typing import Final

import click

from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.containers import take_inventory
from cnm_bridge.operator.cli.content.listing import show_endpoints, show_networks
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.fields import templates_have
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.settings.all_settings import DOCKER_HOST
from cnm_bridge.operator.cli.settings.options import with_settings

__all__ = ["ls"]

_ENDPOINT: Final = ("Id", "Container", "Image", "Network", "Addresses", "Mac", "Ports", "Mode", "Age", "Phase")
_NETWORK: Final = ("Id", "Name", "Configuration", "Internal", "Endpoints", "Changed")


@click.command("ls")
@click.option("--networks", is_flag=True, help="List the networks.")
@click.argument("network", required=False)
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@templates_have(*_ENDPOINT, networks=_NETWORK)
@shows
def ls(socket: Path, *, networks: bool, network: str | None, docker_host: str) -> tuple[object, ExitStatus]:
    """List containers on networks of cni-bridge, with addresses and published ports; with NETWORK, those on it.

    Names and images come from the Docker Engine; without an answer of the engine they are "?".

    The exit status is 0; 2 if NETWORK is unknown; 3 if the daemon does not answer.
    """
    inventory = take_inventory(AdminClient(socket), docker_host)
    show = show_networks if networks else show_endpoints
    return show(inventory, network), ExitStatus.FINE
