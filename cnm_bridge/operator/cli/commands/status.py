# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge status`: shows networks, endpoints, pending teardowns and leftovers of a running daemon."""

import time
from pathlib import Path
from typing import Final

import click

from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.content.status_text import find_dhcp_problems, has_teardowns, knows_teardowns, show_status
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.network_names import find_names
from cnm_bridge.operator.cli.output.fields import templates_have
from cnm_bridge.operator.cli.output.options import shows
from cnm_bridge.operator.cli.settings.all_settings import DOCKER_HOST
from cnm_bridge.operator.cli.settings.options import with_settings
from cnm_bridge.operator.cli.settings.types import Seconds

__all__ = ["status"]

_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.6
"""An answer about thousands of endpoints takes the daemon a sixth of a second."""

_TOO_OLD: Final = (
    "the daemon is older than this command and does not report teardowns under way, so --wait is not possible; restart "
    "it after an upgrade (systemctl restart cni-bridge)"
)


@click.command()
@with_settings(DOCKER_HOST, has_config=False)
@asks_daemon
@templates_have(
    *("Id", "Network", "NetworkId", "Phase", "Mode", "Configuration", "Addresses", "SandboxKey", "NotPublished")
)
@click.option("--wait", type=Seconds(), help="Wait until no teardown is pending, at most for this many seconds.")
@shows
def status(socket: Path, *, wait: float | None, docker_host: str) -> tuple[object, ExitStatus]:
    """Show networks, endpoints, pending teardowns and leftovers of the running daemon.

    The first line says whether anything needs attention.

    The exit status is 0 if there are no failed teardowns, no leftovers and no problems of DHCP, and after --wait no
    pending teardowns, else 1; 3 if the daemon does not answer.
    """
    client = AdminClient(socket)
    document = client.get("status")
    if wait is not None and not knows_teardowns(document):
        raise DaemonError(_TOO_OLD, ExitStatus.NO_DAEMON)
    deadline, pause_s = time.monotonic() + (wait or 0), _PAUSE_S
    while wait is not None and has_teardowns(document) and time.monotonic() < deadline:
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        document = client.get("status")
    problems = (document["pendingTeardowns"], document["orphans"], find_dhcp_problems(document))
    is_fine = not any(problems) and not (wait is not None and has_teardowns(document))
    return show_status(document, find_names(document, docker_host)), ExitStatus.FINE if is_fine else ExitStatus.FINDINGS
