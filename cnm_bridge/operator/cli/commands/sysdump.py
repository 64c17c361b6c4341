# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge sysdump`: collects what a bug report needs in one file, without secrets."""

from datetime import UTC, datetime
from pathlib import Path

import click

from cnm_bridge.operator.cli.admin_command import asks_daemon
from cnm_bridge.operator.cli.content.redaction import describe_redacted
from cnm_bridge.operator.cli.content.sysdump_content import collect, pack
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.settings.all_settings import DIRECTORIES
from cnm_bridge.operator.cli.settings.options import with_settings
from cnm_bridge.operator.cli.settings.types import File
from cnm_bridge.operator.cli.write_file import write_file

__all__ = ["sysdump"]


@click.command("sysdump")
@click.argument("file", type=File(), required=False)
@with_settings(*(one for one in DIRECTORIES if one.name != "run-dir"), has_config=False)
@asks_daemon
def sysdump(
    socket: Path, *, file: Path | None, cni_conf_dirs: tuple[Path, ...], cni_bin_dirs: tuple[Path, ...]
) -> ExitStatus:
    """Write FILE (a .tar.gz, by default in the working directory) for a bug report.

    It has the daemon's documents, state, events and log, the findings of doctor, the CNI configurations, and what the
    kernel, iptables and Docker show. Values whose names say that they are secret (password, token, key, …) are
    removed, in texts that are not JSON or TOML with the rest of the line; how many, and from which files, is printed.
    A secret under another name is not recognised, so look at it before you publish it; names, addresses and image
    names are in it as well.

    Without a daemon it has everything else. FILE is complete, or does not exist.

    The exit status is 0; 1 if FILE cannot be written; 2 if FILE exists.
    """
    target = file or Path(f"cni-bridge-sysdump-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz")
    if target.exists():
        raise click.UsageError(f"{target} exists, and is not overwritten; choose another name")
    files = dict(collect(socket, cni_conf_dirs, cni_bin_dirs))
    write_file(target, pack(files.items(), target.name.partition(".")[0]))
    click.echo(target)
    click.echo(f"cni-bridge: {describe_redacted(files)}", err=True)
    return ExitStatus.FINE
