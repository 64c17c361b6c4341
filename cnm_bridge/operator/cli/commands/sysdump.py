# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge sysdump`: collects what a bug report needs in one file.

Neither configurations nor the state are in it, because these may hold secrets.
"""

import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import render_json
from cni_invoker.cli.echo import echo
from cnm_bridge import __version__
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import Command, ExitStatus
from cnm_bridge.operator.cli.settings.daemon_settings import asks_daemon
from cnm_bridge.operator.cli.settings.types import File
from cnm_bridge.operator.whole_file import write_whole

_LIMIT_S: Final = 30.0
_DOCUMENTS: Final = ("status", "endpoints", "leftovers")
_CONTAINERS: Final = r"{{.ID}}\t{{.Names}}\t{{.Image}}\t{{.Status}}\t{{.Ports}}\t{{.Networks}}"
"""What is shown of containers: not their commands, which may have passwords."""
_COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "doctor.json": (sys.executable, "-m", "cnm_bridge", "doctor", "--json"),
    "log.txt": ("journalctl", "--unit=cni-bridge", "--lines=5000", "--no-pager", "--output=short-iso"),
    "docker/version.txt": ("docker", "version"),
    "docker/info.txt": ("docker", "info"),
    "docker/networks.txt": ("docker", "network", "ls", "--no-trunc"),
    "docker/containers.txt": ("docker", "ps", "--all", "--no-trunc", "--format", _CONTAINERS),
    "host/uname.txt": ("uname", "-a"),
    "host/links.txt": ("ip", "-details", "link"),
    "host/addresses.txt": ("ip", "address"),
    "host/routes.txt": ("ip", "route", "show", "table", "all"),
    "host/rules.txt": ("ip", "rule"),
    "host/iptables.txt": ("iptables-save",),
    "host/ip6tables.txt": ("ip6tables-save",),
    "host/nftables.txt": ("nft", "list", "ruleset"),
    "host/sysctls.txt": (
        "sysctl",
        "-a",
        "--pattern",
        r"^net\.(ipv4|ipv6|bridge)\.(conf\.(all|default)|ip_forward|bridge)",
    ),
    "host/plugins.txt": ("ls", "-lR", "/opt/cni/bin", "/usr/lib/cni", "/etc/cni/net.d"),
    "host/run.txt": ("find", "/run/cni-bridge", "/run/docker/plugins", "-maxdepth", "2", "-ls"),
}


@click.command(
    "sysdump",
    cls=Command,
    examples=("sysdump", "sysdump report.tar.gz"),
)
@click.argument("file", type=File(), required=False)
@asks_daemon
def sysdump(socket: Path, *, file: Path | None) -> ExitStatus:
    """Write FILE (a .tar.gz, by default in the working directory) for a bug report.

    It has the daemon's documents, events and log, the findings of doctor, and what the kernel, iptables and Docker
    show. CNI configurations, the state and the commands of containers may hold secrets, and are not in it. Names,
    addresses, image names, plugins' errors and, with `log-level = "debug"`, plugins' output are: read it before you
    publish it.

    Without a daemon it has everything else. FILE is complete, or does not exist.
    """
    target = file or Path(f"cni-bridge-sysdump-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz")
    if target.exists():
        raise click.UsageError(f"{target} exists, and is not overwritten; choose another name")
    if os.geteuid():
        echo("cni-bridge: run as root (sudo): what only root can read is missing in the file", err=True)
    write_whole(target, _pack(_collect(socket), target.name.partition(".")[0]))
    echo(target)
    return ExitStatus.FINE


def _collect(socket: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file; `socket` is the admin socket."""
    yield "version.txt", f"cni-bridge {__version__}\n".encode()
    client = AdminClient(socket)
    for name in _DOCUMENTS:
        try:
            yield f"{name}.json", render_json(client.get(name), indent=2) + b"\n"
        except DaemonError as exc:
            yield f"{name}.json.missing", f"{exc}\n".encode()
    try:
        events = client.lines("events", last="100000", follow="0")
        yield "events.jsonl", b"".join(render_json(event) + b"\n" for event in events)
    except DaemonError as exc:
        yield "events.jsonl.missing", f"{exc}\n".encode()
    for name, command in _COMMANDS.items():
        yield name, _run(command)


def _pack(files: Iterable[tuple[str, bytes]], directory: str) -> bytes:
    """Return a compressed archive of files in a directory."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files:
            member = tarfile.TarInfo(f"{directory}/{name}")
            member.size, member.mtime, member.mode = len(content), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _run(command: Sequence[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"{exc}\n".encode()
    status = f"exit status {done.returncode}\n" if done.returncode else ""
    return status.encode() + done.stdout + done.stderr
