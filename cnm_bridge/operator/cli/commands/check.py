# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge check`: compares endpoints with what their plugins made."""

from pathlib import Path

import click

from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.containers import take_inventory
from cnm_bridge.operator.cli.content.checking import check_endpoints
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.fields import templates_have
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.settings.all_settings import DOCKER_HOST
from cnm_bridge.operator.cli.settings.options import with_settings

__all__ = ["check"]


@click.command("check")
@click.argument("name", required=False)
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@templates_have("Container", "Network", "About", "What")
@shows
def check(socket: Path, *, name: str | None, docker_host: str) -> tuple[object, ExitStatus]:
    """Check that containers are still attached as their plugins made it; with NAME, only those endpoints.

    NAME is a container, an address, or the beginning of an ID. Compared are the link in the sandbox, its addresses and
    routes, reservations and iptables rules; and each plugin runs its CHECK, if its list has CNI 0.4.0 or newer. Rules
    of nftables are checked by plugins only, and default routes as far as the container has them.

    The exit status is 0 if nothing differs, else 1; 2 if NAME is unknown; 3 if the daemon does not answer.
    """
    client = AdminClient(socket)
    return check_endpoints(client, take_inventory(client, docker_host), name)
