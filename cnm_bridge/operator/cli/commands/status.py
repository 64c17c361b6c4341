# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: shows networks, endpoints, pending teardowns and leftovers of a running daemon."""

from pathlib import Path

import click

from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.fields import templates_have
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.settings.all_settings import DOCKER_HOST
from cnm_bridge.operator.cli.settings.options import with_settings

__all__ = ["status"]


@click.command()
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@templates_have(
    *("Id", "Network", "NetworkId", "Phase", "Mode", "Configuration", "Addresses", "SandboxKey", "NotPublished")
)
@shows
def status(socket: Path, *, docker_host: str) -> tuple[object, ExitStatus]:
    """Show networks, endpoints, pending teardowns and leftovers of the running daemon.

    The exit status is 0 if there are no pending teardowns, no leftovers and no problems of DHCP, else 1; 3 if the
    daemon does not answer.
    """
    # These imports are slow and would delay `--help`.
    from cnm_bridge.operator.cli.admin_client import AdminClient  # noqa: PLC0415
    from cnm_bridge.operator.cli.content.status_text import find_dhcp_problems, show_status  # noqa: PLC0415
    from cnm_bridge.operator.cli.network_names import find_names  # noqa: PLC0415

    document = AdminClient(socket).get("status")
    problems = (document["pendingTeardowns"], document["orphans"], find_dhcp_problems(document))
    is_fine = not any(problems)
    return show_status(document, find_names(document, docker_host)), ExitStatus.FINE if is_fine else ExitStatus.FINDINGS
