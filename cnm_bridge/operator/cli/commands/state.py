# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge state`: exports and imports the stored state."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import click

from cni_bridge_spec import JsonError, JsonObject, get_objects, parse_json, render_json
from cni_bridge_state import StateError, StateLocked
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command import Command, CommandGroup, ExitStatus, describe_failure, exits
from cnm_bridge.operator.cli.echo import echo
from cnm_bridge.operator.cli.options import FILE, with_settings
from cnm_bridge.operator.cli.output import count
from cnm_bridge.operator.host import write_whole

_STDIO = Path("-")
_KINDS: Final = {
    "networks": "network",
    "endpoints": "endpoint",
    "pools": "pool",
    "addresses": "address",
    "memories": "memory",
}
"""The kinds of records, with the name of one."""


@click.group(
    "state",
    cls=CommandGroup,
    examples=("state export backup.json", "state import --replace backup.json"),
)
def state() -> None:
    """Export and import the stored state. `import` needs a stopped daemon."""


@state.command(
    "export",
    cls=Command,
    examples=("state export", "state export backup.json"),
)
@with_settings("state_dir", "admin_socket", "run_dir")
@click.argument("file", type=FILE, default=_STDIO)
@exits
def export(*, settings: Settings, file: Path) -> ExitStatus:
    """Write the whole state as JSON to FILE, or to standard output.

    If a daemon runs with this state, it is asked. Configurations may hold credentials: FILE is made readable by its
    owner only.
    """
    if file != _STDIO and file.exists():
        raise click.UsageError(f"{file} exists, and is not replaced; choose another name")
    document = _read(settings.state_dir, settings.admin_path)
    content = render_json(document) + b"\n"
    if file == _STDIO:
        sys.stdout.buffer.write(content)
    else:
        write_whole(file, content)
    return ExitStatus.FINE


@state.command(
    "import",
    cls=Command,
    examples=("state import backup.json", "state import --replace backup.json"),
)
@with_settings("state_dir")
@click.option("--replace", is_flag=True, help="Discard the current state without undoing anything.")
@click.argument("file", type=FILE)
@exits
def import_(*, settings: Settings, replace: bool, file: Path) -> ExitStatus:
    """Import the state that `export` wrote to FILE (`-`: standard input), all or nothing."""
    try:
        content = sys.stdin.buffer.read() if file == _STDIO else file.read_bytes()
        document = parse_json(content)
    except (OSError, JsonError) as exc:
        raise Refused(f"{file}: {describe_failure(exc)}") from exc
    try:
        with _opened(settings.state_dir, partial(Store.open_imported, document=document, replace=replace)) as store:
            imported = store.export_document()
            echo(", ".join(count(len(get_objects(imported, kind)), noun) for kind, noun in _KINDS.items()), err=True)
    except StateLocked as exc:
        raise Refused(f"{exc}; stop it first") from exc
    return ExitStatus.FINE


def _read(directory: Path, socket: Path) -> JsonObject:
    """Return the whole state: from the directory, or from the daemon that has it open."""
    try:
        if not directory.is_dir():
            raise Refused(f"there is no state in {directory}; --state-dir says where it is")
        with _opened(directory, Store.open) as store:
            return store.export_document()
    except StateLocked as locked:
        try:
            return AdminClient(socket).get("state")
        except DaemonError as exc:
            raise Refused(f"{locked}; {exc}") from exc


@contextmanager
def _opened(directory: Path, open_store: Callable[[Path], Store]) -> Iterator[Store]:
    """Open the store and print what was found damaged; an error ends the command with its text."""
    try:
        store = open_store(directory)
        try:
            for finding in store.findings:
                echo(f"cni-bridge: {finding}", err=True)
            yield store
        finally:
            store.close()
    except StateLocked:
        raise
    except StateError as exc:
        as_root = "run as root (sudo): " if isinstance(exc.__cause__, PermissionError) and os.geteuid() else ""
        raise Refused(f"{as_root}{exc}") from exc
