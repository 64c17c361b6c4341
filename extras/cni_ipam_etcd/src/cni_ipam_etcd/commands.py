# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The operator's commands: what is reserved, and the release of what a node has that is gone."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from cni_invoker.documents.jsontypes import render_json
from cni_ipam_etcd.reservations import Reservations
from cni_ipam_etcd.settings import DEFAULT_FILE, Settings
from cni_plugin import CallError

__all__ = ["commands"]

_config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=DEFAULT_FILE,
    show_default=True,
    help="The file that says where etcd is.",
)


def _check_name(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Refuse what would name the keys of others: an empty variable of a script, or a path."""
    if value is not None and (not value or "/" in value):
        raise click.BadParameter(f"{value!r} is not a name")
    return value


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an error of the plugin is a message and exit status 1."""
        try:
            return super().invoke(ctx)
        except CallError as exc:
            raise click.ClickException(f"{exc.msg}{f': {exc.details}' if exc.details else ''}") from exc


@click.group("cni-ipam-etcd", cls=_Commands)
def commands() -> None:
    """Addresses that are unique in a cluster: the operator's commands of the CNI plugin cni-ipam-etcd."""


@commands.command("list")
@click.option("--node", default="", help="Only those of this node.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object in each line, for each attachment.")
@_config
def list_(config: Path, node: str, *, as_json: bool) -> None:
    """Show which addresses are reserved, by whom, and since when."""
    with Reservations.connected(Settings.of_file(config)) as reservations:
        found = [one for one, _ in reservations.of_node(node)]
    if as_json:
        for one in found:
            click.echo(render_json(one.document))
        return
    found.sort(key=lambda one: (one.network, one.addresses[0].version, one.addresses[0]))
    _print_table(
        ("NETWORK", "ADDRESS", "NODE", "CONTAINER ID", "IFNAME", "SINCE"),
        [
            (one.network, str(address), one.node, one.container_id, one.ifname, one.time[:19] + "Z")
            for one in found
            for address in one.addresses
        ],
    )


@commands.command()
@_config
def nodes(config: Path) -> None:
    """Show the nodes that have reservations, and when each was last seen."""
    with Reservations.connected(Settings.of_file(config)) as reservations:
        counts = Counter(one.node for one, _ in reservations.of_node())
        seen = reservations.nodes()
    rows = [
        (node, str(counts[node]), f"{seen[node]:%Y-%m-%dT%H:%M:%SZ}" if node in seen else "never")
        for node in sorted({*counts, *seen})
    ]
    _print_table(("NODE", "ATTACHMENTS", "LAST SEEN"), rows)


@commands.command()
@_config
def seen(config: Path) -> None:
    """Write down that this node is alive, as each ADD, DEL, GC and STATUS does. A timer may run it."""
    with Reservations.connected(Settings.of_file(config)) as reservations:
        reservations.mark_seen()


@commands.command()
@click.option("--node", required=True, callback=_check_name, help="The node that is gone.")
@click.option("--container", callback=_check_name, help="Only what this container has: its whole ID.")
@click.option(
    "--unseen-for",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="Minutes after which it counts as gone.",
)
@click.option("--force", is_flag=True, help="Even if it is alive: others get the addresses of its containers.")
@_config
def release(config: Path, node: str, container: str | None, unseen_for: int, *, force: bool) -> None:
    """Release what a node has reserved that is gone for good.

    A node counts as alive if it is this one, or was seen within the last hour; see --unseen-for. A node on which no
    container is started or removed is seen only if it runs GC, STATUS or `cni-ipam-etcd seen`.
    """
    settings = Settings.of_file(config)
    with Reservations.connected(settings) as reservations:
        found = list(reservations.of_node(node))
        seen_at = reservations.nodes().get(node)
        if not force and node == settings.node:
            raise click.ClickException(f"{node} is this node; DEL of its containers releases them, or use --force")
        if not force and seen_at is not None and seen_at > datetime.now(UTC) - timedelta(minutes=unseen_for):
            raise click.ClickException(
                f"{node} is alive: it was last seen at {seen_at:%Y-%m-%dT%H:%M:%SZ}. If it is gone, use --force"
            )
        chosen = [item for item in found if container in {None, item[0].container_id}]
        for one, value in chosen:
            reservations.release(one, value)
            click.echo(f"released {', '.join(map(str, one.addresses))} on network {one.network}: {one}")
        if len(chosen) == len(found):
            reservations.forget_owner(node)  # so that a new host may have its name
    if not chosen:
        click.echo(f"{container or 'node ' + node} has no reservation")


def _print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        click.echo("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())
