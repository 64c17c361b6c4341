# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-egress`: it runs the daemon, shows what is in force, and changes it.

The options of `cni-egress run` may also be keys of a TOML file, with the same names.
"""

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

import click

from cni_egress import __version__
from cni_egress.changes import Changed, NoResponder, allow_entries, deny_entries
from cni_egress.daemon import LOG_FILE, Settings, run
from cni_egress.enforcement import Enforcement, NftFailed
from cni_egress.inspection import Destination, check_destination, describe_networks, describe_status
from cni_egress.log_lines import follow_lines, learn_entries, read_lines
from cni_egress.policy import BadEntry
from cni_egress.records import DIRECTORY, BadRecord, Records
from cni_egress.supervisor import configure_logging
from cni_egress.text import show_answer, show_line, show_networks, show_state
from cni_egress.upstream import Server
from cni_invoker.documents.jsontypes import JsonValue

__all__ = ["main"]

_FILE: Final = Path("/etc/cni-bridge/egress.toml")
_PATH: Final = click.Path(path_type=Path)


def _parse_servers(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Server, ...]:
    try:
        return tuple(map(Server.parse, texts))
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def _parse_address(_: click.Context, __: click.Parameter, text: str) -> Server | None:
    """Return an address with its port; None if there is none."""
    if not text:
        return None
    try:
        found = Server.parse(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc
    if str(found) != text:
        raise click.BadParameter(f"{text!r} has no port; write ADDRESS:PORT, such as 127.0.0.1:9792")
    return found


def _read_file(context: click.Context, _: click.Parameter, path: Path) -> Path:
    """Make the keys of a file the defaults of the options."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if path != _FILE:
            raise click.BadParameter(f"{path} does not exist") from None
        return path
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as exc:
        raise click.BadParameter(f"{path} cannot be read: {exc}") from exc
    names = {str(one.name).replace("_", "-"): one.name for one in context.command.params if one.name != "config"}
    unknown = [key for key in found if key not in names]
    if unknown:
        raise click.BadParameter(f"{path}: unknown key {unknown[0]}; there are {', '.join(sorted(names))}")
    context.default_map = {str(names[key]): value for key, value in found.items()}
    return path


_DIRECTORY: Final = click.option(
    "--directory",
    type=_PATH,
    default=DIRECTORY,
    show_default=True,
    help="The records of the plugin; the log of refusals is below it.",
)
_JSON: Final = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


@click.group("cni-egress")
@click.version_option(__version__, prog_name="cni-egress")
def main() -> None:
    """Guarded networks: containers reach only what their network allows."""


@main.command("run")
@click.option(
    "--config",
    type=_PATH,
    default=_FILE,
    show_default=True,
    is_eager=True,
    expose_value=False,
    callback=_read_file,
    help="A TOML file with these options as keys.",
)
@click.option(
    "--upstream",
    metavar="ADDRESS[:PORT]",
    multiple=True,
    callback=_parse_servers,
    help="A resolver to ask; may be repeated.",
)
@click.option(
    "--resolv-conf",
    type=_PATH,
    default=Path("/etc/resolv.conf"),
    show_default=True,
    help="The file that names the resolvers if there is no --upstream; it is read again when it changes.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="Seconds that an address stays open after the TTL of its answer.",
)
@click.option(
    "--cache",
    type=click.IntRange(min=0),
    default=5_000,
    show_default=True,
    help="How many responses are remembered.",
)
@_DIRECTORY
@click.option("--user", default="", help="The user to become. Started as root, the daemon keeps CAP_NET_ADMIN only.")
@click.option(
    "--metrics-listen",
    metavar="ADDRESS:PORT",
    default="",
    callback=_parse_address,
    help="Serve metrics at http://ADDRESS:PORT/metrics, to everyone who can connect.",
)
@click.option("--verbose", is_flag=True, help="Log each query that no resolver has answered.")
def run_daemon(
    *,
    upstream: tuple[Server, ...],
    resolv_conf: Path,
    grace: float,
    cache: int,
    directory: Path,
    user: str,
    metrics_listen: Server | None,
    verbose: bool,
) -> None:
    """Answer the DNS queries of guarded containers, log what they are refused, and repair the tables."""
    configure_logging(verbose=verbose)
    settings = Settings(
        upstream=upstream,
        resolv_conf=resolv_conf,
        grace_s=grace,
        cache=cache,
        directory=directory,
        user=user,
        metrics_listen=metrics_listen,
    )
    try:
        run(settings)
    except BlockingIOError as exc:
        raise click.ClickException("another cni-egress runs already") from exc
    except (KeyError, OSError) as exc:
        raise click.ClickException(str(exc)) from exc


class _Unanswered(click.ClickException):
    """A question whose answer is the exit status, 0 or 1, has none."""

    exit_code = 2


@contextmanager
def _errors(failure: type[click.ClickException] = click.ClickException) -> Iterator[None]:
    try:
        yield
    except PermissionError as exc:
        raise failure(f"{exc.filename or 'the kernel'}: only root may do that") from exc
    except (BadEntry, BadRecord, NftFailed, NoResponder, OSError) as exc:
        raise failure(str(exc)) from exc


def _print(document: JsonValue) -> None:
    click.echo(json.dumps(document))


@main.command("ls")
@click.option("--network", help="Only this network.")
@_JSON
@_DIRECTORY
def list_networks(*, network: str | None, is_json: bool, directory: Path) -> None:
    """Show the guarded networks: policies, containers, and what names have opened.

    Refusals are those in the log. A network without containers has nothing in force, and is not shown.
    """
    with _errors():
        found = describe_networks(Records(directory), network, read_lines(directory / LOG_FILE))
    if is_json:
        _print(found)
    else:
        click.echo(show_networks(found) or "No guarded network has a container.")


@main.command("status")
@_JSON
@_DIRECTORY
def show_status(*, is_json: bool, directory: Path) -> None:
    """Show whether the daemon runs, and whether the kernel has all that protects the containers."""
    with _errors():
        found = describe_status(Records(directory))
    if is_json:
        _print(found)
    else:
        click.echo(show_state(found))


@main.command("sweep")
@_JSON
@_DIRECTORY
def sweep(*, is_json: bool, directory: Path) -> None:
    """End the guards of links that do not exist any more. The daemon does so by itself."""
    records = Records(directory)
    with _errors(), records.locked(), Enforcement(records) as enforcement:
        found = sorted(enforcement.remove_stale_guards())
    if is_json:
        _print({"removed": [*found]})
    else:
        click.echo(f"guards removed: {', '.join(found) or 'none'}")


@main.command("log")
@click.option("--network", help="Only this network.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is refused from now on.")
@_JSON
@_DIRECTORY
def show_log(*, network: str | None, follow: bool, is_json: bool, directory: Path) -> None:
    """Show what was refused, oldest first. With --json, each line is as in the file."""
    path = directory / LOG_FILE
    with _errors():
        lines = chain(read_lines(path), follow_lines(path)) if follow else read_lines(path)
        for line in lines:
            if network in {None, line.get("network")}:
                click.echo(json.dumps(line) if is_json else show_line(line))


@main.command("allow")
@click.argument("network")
@click.argument("entries", metavar="ENTRY...", nargs=-1, required=True)
@_JSON
@_DIRECTORY
def allow(*, network: str, entries: tuple[str, ...], is_json: bool, directory: Path) -> None:
    """Allow entries to all containers that are on NETWORK now. The next ones have what the network's list says."""
    with _errors():
        changed = allow_entries(Records(directory), network, entries)
    _show_change(network, changed, is_json=is_json)


@main.command("deny")
@click.argument("network")
@click.argument("entries", metavar="ENTRY...", nargs=-1, required=True)
@_JSON
@_DIRECTORY
def deny(*, network: str, entries: tuple[str, ...], is_json: bool, directory: Path) -> None:
    """Remove entries from the policies of all containers that are on NETWORK now, and close what they had opened.

    If it is killed, some containers have the former policy; run it again.
    """
    with _errors():
        changed = deny_entries(Records(directory), network, entries)
    _show_change(network, changed, is_json=is_json)


def _show_change(network: str, changed: Changed, *, is_json: bool) -> None:
    if is_json:
        containers: list[JsonValue] = [one.container_id for one in changed.changed]
        covered: list[JsonValue] = [*changed.covered]
        _print({"network": network, "attachments": changed.attachments, "changed": containers, "notes": covered})
        return
    if changed.attachments:
        click.echo(f"changed: {len(changed.changed)} of {changed.attachments} containers on {network}")
    else:
        click.echo(f"no container is on {network}, so nothing was changed; `cni-egress ls` shows the networks")
    for one in changed.covered:
        click.echo(f"note: {one}")


@main.command("check")
@click.argument("container", metavar="CONTAINER|ADDRESS")
@click.argument("destination", metavar="DESTINATION:PORT[/PROTOCOL]")
@_JSON
@_DIRECTORY
@click.pass_context
def check(context: click.Context, /, *, container: str, destination: str, is_json: bool, directory: Path) -> None:
    """Ask the kernel's tables whether a container may connect.

    The exit status is 0 if it may, 1 if not, and 2 without an answer.

    CONTAINER is a container ID, or the beginning of one. DESTINATION is a name or an address.
    """
    with _errors(_Unanswered):
        answer = check_destination(Records(directory), container, Destination.parse(destination))
    if answer is None:
        raise click.UsageError(f"no guarded container has the ID or the address {container}")
    if is_json:
        record = answer.record
        _print(
            {
                "allowed": answer.allowed,
                "why": answer.why,
                "destination": destination,
                "network": record.network,
                "containerId": record.container_id,
                "ifName": record.ifname,
                "open": [*answer.opened],
            }
        )
    else:
        click.echo(show_answer(answer, destination))
    context.exit(0 if answer.allowed else 1)


@main.command("learn")
@click.argument("network")
@_JSON
@_DIRECTORY
def learn(*, network: str, is_json: bool, directory: Path) -> None:
    """Print the entries that allow what NETWORK, which only watches (audit), has logged, and those that it has.

    What other networks were refused is not learnt.
    """
    with _errors():
        lines = read_lines(directory / LOG_FILE)
        entries = learn_entries(line for line in lines if line.get("network") == network and line.get("audit") is True)
        present = [e for one in Records(directory).all() if one.network == network for e in one.policy.entries]
    found: list[JsonValue] = [*dict.fromkeys([*present, *entries])] if entries else []
    if is_json:
        _print(found)
    elif found:
        click.echo("\n".join(f"--allow {entry}" for entry in found))
    else:
        raise click.ClickException(f"the log has nothing of {network} that passed because of an audit")
