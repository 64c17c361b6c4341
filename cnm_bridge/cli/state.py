# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge state`: shows, exports and imports the stored state while no daemon is running."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from cnm_bridge.cli.options import STATE_DIR, with_settings
from cnm_bridge.cli.types import File
from cnm_bridge.errors import BridgeError, Refused

if TYPE_CHECKING:  # these imports are slow and would delay `serve`
    from cni_bridge_state import Store

__all__ = ["state"]

_STDIO = Path("-")
_MODE = 0o600


@click.group()
def state() -> None:
    """Show, export and import the stored state; the daemon must be stopped."""


@state.command()
@with_settings(STATE_DIR)
@click.argument("prefix", metavar="[ID]", default="")
def show(*, state_dir: Path, prefix: str) -> None:
    """Show networks and endpoints with their phases; with an ID or its beginning, the complete record."""
    from cnm_bridge.cli.state_text import render_found, render_overview  # noqa: PLC0415

    with _opened(state_dir) as store:
        text = render_found(store, prefix) if prefix else render_overview(store)
        if not text:
            raise Refused(f"nothing in {state_dir} has an ID that begins with {prefix}")
    click.echo(text)


@state.command()
@with_settings(STATE_DIR)
@click.argument("file", type=File(), default=_STDIO)
def export(*, state_dir: Path, file: Path) -> None:
    """Write the whole state as JSON to FILE, or to standard output.

    Configurations may hold credentials: FILE is made readable by its owner only.
    """
    from cni_bridge_spec import render_json  # noqa: PLC0415

    with _opened(state_dir) as store:
        content = render_json(store.export_document()) + b"\n"
        if file == _STDIO:
            sys.stdout.buffer.write(content)
        else:
            _write(file, content)


@state.command("import")
@with_settings(STATE_DIR)
@click.option("--replace", is_flag=True, help="Discard the current state without undoing anything.")
@click.argument("file", type=File())
def import_(*, state_dir: Path, replace: bool, file: Path) -> None:
    """Import the state that `export` wrote to FILE (`-`: standard input), all or nothing."""
    from cni_bridge_spec import JsonError, parse_json  # noqa: PLC0415

    try:
        content = sys.stdin.buffer.read() if file == _STDIO else file.read_bytes()
        document = parse_json(content)
    except (OSError, JsonError) as exc:
        _fail(f"{file}: {exc}")
    with _opened(state_dir, make=True) as store:
        store.import_document(document, replace=replace)
        click.echo(f"{len(store.networks())} networks, {len(store.endpoints())} endpoints", err=True)


@contextmanager
def _opened(directory: Path, *, make: bool = False) -> Iterator["Store"]:
    """Open the store and print what was found damaged; an error ends the command with its text."""
    from cni_bridge_state import StateError, Store  # noqa: PLC0415

    try:
        if not make and not directory.is_dir():
            raise Refused(f"there is no state in {directory}; --state-dir says where it is")
        store = Store.open(directory.absolute())
        try:
            for finding in store.findings:
                click.echo(f"cni-bridge: {finding}", err=True)
            yield store
        finally:
            store.close()
    except (BridgeError, StateError) as exc:
        _fail(str(exc))


def _fail(text: str) -> NoReturn:
    click.echo(f"cni-bridge: {text}", err=True)
    sys.exit(1)


def _write(file: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with os.fdopen(fd, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except OSError as exc:
        unfinished.unlink(missing_ok=True)
        raise Refused(f"cannot write {file}: {exc}") from exc
