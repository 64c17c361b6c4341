# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: shows networks, endpoints, pending teardowns and orphans of a running daemon."""

from pathlib import Path

import click

from cnm_bridge.cli.admin_command import asks_daemon
from cnm_bridge.cli.exit_status import ExitStatus
from cnm_bridge.cli.output.options import shows

__all__ = ["status"]


@click.command()
@asks_daemon
@shows
def status(socket: Path) -> tuple[object, ExitStatus]:
    """Show networks, endpoints, pending teardowns and orphans of the running daemon.

    Templates have Id, Network, Phase, Mode, Addresses and the other values of an endpoint.

    The exit status is 0 if there are no pending teardowns, no orphans and no problems of DHCP, else 1; 3 if the daemon
    does not answer.
    """
    # These imports are slow and would delay `serve`.
    from cnm_bridge.cli.admin_client import AdminClient  # noqa: PLC0415
    from cnm_bridge.cli.status_text import find_dhcp_problems, show_status  # noqa: PLC0415

    document = AdminClient(socket).get("status")
    problems = (document["pendingTeardowns"], document["orphans"], find_dhcp_problems(document))
    is_fine = not any(problems)
    return show_status(document), ExitStatus.FINE if is_fine else ExitStatus.FINDINGS
