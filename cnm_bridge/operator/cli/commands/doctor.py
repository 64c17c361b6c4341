# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge doctor`: examines the host, before and after the installation."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from cni_bridge_spec import JsonObject
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.daemon_settings import finds_settings
from cnm_bridge.operator.cli.options import read_config_file
from cnm_bridge.operator.cli.output import Prose, Shown, shows
from cnm_bridge.operator.doctor.gather import gather
from cnm_bridge.operator.doctor.report import Report

_LIMIT_S: Final = 10.0
_COMMANDS: Final = ("    fix: ", "    do: ", "    or: ")


@click.command(
    "doctor",
    cls=Command,
    examples=("doctor", "doctor --quick", "doctor --json"),
)
@click.option(
    "--quick",
    is_flag=True,
    help="For monitoring: executes no plugin, requests nothing of Docker, prints errors and warnings only.",
)
@finds_settings
@shows
def doctor(settings: Settings, *, quick: bool) -> tuple[Shown, ExitStatus]:
    """Examine the host: kernel, firewall, engine, plugins, addresses, installation. Changes nothing.

    Each finding comes with the command that fixes it. No daemon is needed; if one answers at the --admin-socket, where
    systemd may start it, its own settings are used, changed by the options given here.
    """
    mistakes: Sequence[str] = ()
    with suppress(OSError):  # there need not be such a file
        _, mistakes = read_config_file(settings.config)
    report = Report.of(asyncio.run(gather(settings, mistakes, _ask_daemon(settings), quick=quick)))
    document = report.render_json()
    lines = report.render_text(quick=quick).split("\n")
    shown = Shown(document=document, parts=[Prose(lines=lines, hang=4, commands=_COMMANDS)])
    return shown, ExitStatus.FINE if report.is_good else ExitStatus.FINDINGS


def _ask_daemon(settings: Settings) -> JsonObject | None:
    """Return what the running daemon has, None if none answers."""
    client = AdminClient(settings.admin_path, _LIMIT_S)
    try:
        return {**client.get("addresses"), **client.get("endpoints")}
    except DaemonError:
        return None
