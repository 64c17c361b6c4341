# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: shows networks, endpoints, pending teardowns and orphans of a running daemon."""

import json
from pathlib import Path

import click

from cnm_bridge.cli.admin_command import asks_daemon
from cnm_bridge.cli.exit_status import ExitStatus

__all__ = ["status"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the complete status as JSON, with full IDs.")
@asks_daemon
def status(socket: Path, *, as_json: bool) -> ExitStatus:
    """Show networks, endpoints, pending teardowns and orphans of the running daemon.

    The exit status is 0 if there are no pending teardowns and no orphans, else 1; 3 if the daemon does not answer.
    """
    # These imports are slow and would delay `serve`.
    from cnm_bridge.cli.admin_client import AdminClient  # noqa: PLC0415
    from cnm_bridge.cli.status_text import render_status  # noqa: PLC0415

    document = AdminClient(socket).get("status")
    click.echo(json.dumps(document, indent=2) if as_json else render_status(document))
    return ExitStatus.FINDINGS if document["pendingTeardowns"] or document["orphans"] else ExitStatus.FINE
