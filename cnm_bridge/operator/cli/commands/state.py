# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge state`: shows, exports and imports the stored state."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_interface
from pathlib import Path
from typing import NoReturn

import click

from cni_bridge_spec import (
    JsonError,
    JsonObject,
    find_object,
    find_str,
    get_bool,
    get_objects,
    get_str,
    parse_json,
    render_json,
)
from cni_bridge_state import StateError, StateLocked
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError
from cnm_bridge.operator.cli.command_group import CommandGroup
from cnm_bridge.operator.cli.output.table import SHORT, table
from cnm_bridge.operator.cli.output.values import count
from cnm_bridge.operator.cli.settings.all_settings import ADMIN_SOCKET, RUN_DIR, STATE_DIR
from cnm_bridge.operator.cli.settings.options import with_settings
from cnm_bridge.operator.cli.settings.types import File
from cnm_bridge.operator.whole_file import write_whole

_STDIO = Path("-")


@click.group(cls=CommandGroup)
def state() -> None:
    """Show, export and import the stored state. `import` needs a stopped daemon."""


@state.command()
@with_settings(STATE_DIR, ADMIN_SOCKET, RUN_DIR)
@click.option("--json", "as_json", is_flag=True, help="Print the complete records as a JSON array.")
@click.argument("prefix", metavar="[ID]", default="")
def show(*, state_dir: Path, admin_socket: Path | None, run_dir: Path, as_json: bool, prefix: str) -> None:
    """Show networks, endpoints, pools and addresses; with an ID or its beginning, the complete record.

    If a daemon runs with this state, it is asked.

    The exit status is 0; 1 if the state cannot be read, or has no such ID; 2 if an option is wrong.
    """
    document = _read(state_dir, Settings(admin_socket=admin_socket, run_dir=run_dir).admin_path)
    found = _find_records(document, prefix)
    if prefix and not found:
        _fail(f"nothing in {state_dir} has an ID that begins with {prefix}")
    if as_json:
        click.echo(render_json([*found], indent=2).decode())
    elif prefix:
        click.echo("\n".join(render_json(record).decode("ascii") for record in found))
    else:
        click.echo(_render_overview(document))


@state.command()
@with_settings(STATE_DIR, ADMIN_SOCKET, RUN_DIR)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.argument("file", type=File(), default=_STDIO)
def export(*, state_dir: Path, admin_socket: Path | None, run_dir: Path, force: bool, file: Path) -> None:
    """Write the whole state as JSON to FILE, or to standard output.

    If a daemon runs with this state, it is asked. Configurations may hold credentials: FILE is made readable by its
    owner only.

    The exit status is 0; 1 if the state cannot be read or written; 2 if an option is wrong, or FILE exists.
    """
    if file != _STDIO and file.exists() and not force:
        raise click.UsageError(f"{file} exists, and is not replaced; choose another name, or give --force")
    document = _read(state_dir, Settings(admin_socket=admin_socket, run_dir=run_dir).admin_path)
    content = render_json(document) + b"\n"
    if file == _STDIO:
        sys.stdout.buffer.write(content)
        return
    try:
        write_whole(file, content)
    except Refused as exc:
        _fail(str(exc))


@state.command("import")
@with_settings(STATE_DIR)
@click.option("--replace", is_flag=True, help="Discard the current state without undoing anything.")
@click.argument("file", type=File())
def import_(*, state_dir: Path, replace: bool, file: Path) -> None:
    """Import the state that `export` wrote to FILE (`-`: standard input), all or nothing.

    The exit status is 0; 1 if nothing was imported; 2 if an option is wrong.
    """
    try:
        content = sys.stdin.buffer.read() if file == _STDIO else file.read_bytes()
        document = parse_json(content)
    except (OSError, JsonError) as exc:
        _fail(f"{file}: {exc}")
    try:
        open_store = partial(Store.open_replaced, document=document) if replace else Store.open
        with _opened(state_dir, open_store) as store:
            if not replace:
                store.import_document(document)
            numbers = {
                "network": len(store.networks()),
                "endpoint": len(store.endpoints()),
                "pool": len(store.ipam.pools()),
                "address": len(store.ipam.addresses()),
            }
            click.echo(", ".join(count(number, noun) for noun, number in numbers.items()), err=True)
    except StateLocked as exc:
        _fail(f"{exc}; stop it first")


def _read(directory: Path, socket: Path) -> JsonObject:
    """Return the whole state: from the directory, or from the daemon that has it open."""
    try:
        if not directory.is_dir():
            _fail(f"there is no state in {directory}; --state-dir says where it is")
        with _opened(directory, Store.open) as store:
            return store.export_document()
    except StateLocked as locked:
        try:
            return AdminClient(socket).get("state")
        except DaemonError as exc:
            _fail(f"{locked}; {exc}")


@contextmanager
def _opened(directory: Path, open_store: Callable[[Path], Store]) -> Iterator[Store]:
    """Open the store and print what was found damaged; an error ends the command with its text."""
    try:
        store = open_store(directory.absolute())
        try:
            for finding in store.findings:
                click.echo(f"cni-bridge: {finding}", err=True)
            yield store
        finally:
            store.close()
    except StateLocked:
        raise
    except StateError as exc:
        _fail(str(exc))


def _fail(text: str) -> NoReturn:
    click.echo(f"cni-bridge: {text}", err=True)
    sys.exit(1)


def _render_overview(document: JsonObject) -> str:
    """Return a table of networks, one of endpoints, and those of pools and addresses if there are any."""
    found = get_objects(document, "networks")
    names = {get_str(network, "id"): find_str(network, "name") for network in found}
    networks = [(get_str(one, "id")[:SHORT], find_str(one, "name") or "-", _binding(one)) for one in found]
    endpoints = [
        (
            get_str(one, "id")[:SHORT],
            names.get(get_str(one, "networkId")) or get_str(one, "networkId")[:SHORT],
            get_str(one, "phase"),
            " ".join(_addresses(one)) or "-",
            find_str(one, "sandboxKey") or "-",
        )
        for one in get_objects(document, "endpoints")
    ]
    return "\n\n".join(
        (
            table(("NETWORK", "NAME", "CONFIGURATION"), networks),
            table(("ENDPOINT", "NETWORK", "PHASE", "ADDRESSES", "SANDBOX"), endpoints),
            *_render_ipam(document),
        )
    )


def _render_ipam(document: JsonObject) -> Iterator[str]:
    """Yield a table of pools and one of addresses, if there are any."""
    pools = [(get_str(one, "id"), find_str(one, "gateway") or "-") for one in get_objects(document, "pools")]
    addresses = [
        (
            get_str(one, "id")[:SHORT],
            get_str(one, "pool"),
            get_str(one, "phase"),
            find_str(one, "address") or "-",
            find_str(one, "name") or "-",
        )
        for one in get_objects(document, "addresses")
    ]
    if pools:
        yield table(("POOL", "GATEWAY"), pools)
    if addresses:
        yield table(("ADDRESS ID", "POOL", "PHASE", "ADDRESS", "CONTAINER"), addresses)


def _find_records(document: JsonObject, prefix: str) -> Sequence[JsonObject]:
    """Return the records whose IDs begin with `prefix`."""
    kinds = ("networks", "endpoints", "pools", "addresses")
    records = (record for kind in kinds for record in get_objects(document, kind))
    return tuple(record for record in records if get_str(record, "id").startswith(prefix))


def _binding(network: JsonObject) -> str:
    internal = ", internal" if get_bool(network, "internal") else ""
    return f"{find_str(network, 'configuration') or find_str(network, 'name') or 'of its own name'}{internal}"


def _addresses(endpoint: JsonObject) -> Sequence[str]:
    """Return the addresses that the plugins gave; while ADD is incomplete, those of the latest result."""
    snapshot = find_object(endpoint, "snapshot")
    if snapshot is not None:
        addresses = [get_str(address, "address") for address in get_objects(snapshot, "addresses")]
        return [address for address in addresses if not ip_interface(address).is_link_local]
    result = find_object(endpoint, "result") or {}
    return [find_str(ip, "address") or "?" for ip in get_objects(result, "ips")] if "ips" in result else []
