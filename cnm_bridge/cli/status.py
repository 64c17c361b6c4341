# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: shows networks, endpoints, pending teardowns and orphans of a running daemon."""

import json
import sys
from pathlib import Path

import click

from cnm_bridge.cli.options import SOCKET, with_settings

__all__ = ["status"]


@click.command()
@with_settings(SOCKET)
@click.option("--json", "as_json", is_flag=True, help="Print the complete status as JSON, with full IDs.")
def status(*, socket: Path, as_json: bool) -> None:
    """Show networks, endpoints, pending teardowns and orphans of the running daemon.

    The exit status is 0 if there are no pending teardowns and no orphans, else 2; 1 if the daemon does not answer.
    """
    # These imports are slow and would delay `serve`.
    from cnm_bridge.cli.status_call import NO_ANSWER, ask_status  # noqa: PLC0415
    from cnm_bridge.cli.status_text import render_status  # noqa: PLC0415

    try:
        document = ask_status(socket)
    except NO_ANSWER as exc:
        click.echo(
            f"cni-bridge: no answer on {socket}: {exc}; is the daemon running? Without it, `cni-bridge state show` "
            "reads the state",
            err=True,
        )
        sys.exit(1)
    click.echo(json.dumps(document, indent=2) if as_json else render_status(document))
    sys.exit(2 if document["pendingTeardowns"] or document["orphans"] else 0)
