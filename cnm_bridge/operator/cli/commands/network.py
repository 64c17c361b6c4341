# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge network`: makes a Docker network, with its list if there is none yet, and removes both."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from cni_bridge_spec import JsonObject
from cni_invoker import CniError
from cnm_bridge.core.errors import KernelError, Refused
from cnm_bridge.core.lists.guard import OTHER_NETWORKS, OtherNetworks
from cnm_bridge.core.options.cni_options import CONFIGURATION
from cnm_bridge.core.options.values import BANDWIDTH_OPTIONS
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient, DaemonError, start_command
from cnm_bridge.operator.cli.command import Command, CommandGroup, ExitStatus
from cnm_bridge.operator.cli.daemon_settings import finds_settings
from cnm_bridge.operator.cli.options import parse_pairs
from cnm_bridge.operator.cli.output import Shown, shows
from cnm_bridge.operator.networks.creation import PlannedNetwork, make_network, plan_docker_network, plan_network
from cnm_bridge.operator.networks.removal import remove_network
from cnm_bridge.operator.networks.wanted import parse_wanted

_ELSEWHERE: Final = {
    **dict.fromkeys(("ls", "list"), "`cni-bridge ls --networks` lists them"),
    "inspect": "`docker network inspect` and `cni-bridge ls --networks` show them",
    **dict.fromkeys(("connect", "disconnect", "prune"), "`docker network` does that"),
}
"""Where the subcommands of `docker network` are that this command does not have."""
_SAME: Final = {"remove": "rm", "delete": "rm"}


class _NetworkGroup(CommandGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; the error for one of `docker network` says what to use."""
        if args and args[0] in _ELSEWHERE:
            ctx.fail(f"No such command {args[0]!r}: {_ELSEWHERE[args[0]]}.")
        return super().resolve_command(ctx, [_SAME.get(args[0], args[0]), *args[1:]] if args else args)


@click.group(
    "network",
    cls=_NetworkGroup,
    examples=("network create blue --subnet 10.22.0.0/16", "network rm --configuration blue"),
)
def network() -> None:
    """Make and remove Docker networks; `docker network` does everything else with them."""


@network.command(
    "create",
    cls=Command,
    examples=(
        "network create blue --subnet 10.22.0.0/16",
        "network create dual --subnet 10.23.0.0/16 --subnet fd23::/64",
        "network create lan --parent eth0 --subnet 192.0.2.0/24 --range 192.0.2.200-192.0.2.220",
        "network create leased --parent eth0 --dhcp",
        "network create agents --subnet 10.26.0.0/16 --allow api.example.com --allow 10.0.5.7:5432",
        "network create --dry-run --json green --subnet 10.24.0.0/16",
    ),
)
@click.option(
    "--subnet", "subnets", metavar="SUBNET", multiple=True, help="The containers' addresses; one for each IP version."
)
@click.option(
    "--gateway", "gateways", metavar="ADDRESS", multiple=True, help="In a subnet.  [default: its first address]"
)
@click.option(
    "--range",
    "ranges",
    metavar="RANGE",
    multiple=True,
    help="Which addresses of a subnet containers get: SUBNET or FIRST-LAST.  [default: all]",
)
@click.option("--parent", metavar="LINK", help="Put the containers on the LAN of this link, without a bridge.")
@click.option("--dhcp", is_flag=True, help="With --parent: take the addresses from the LAN's DHCP server.")
@click.option("--no-masquerade", is_flag=True, help="Packets that leave the host keep the container's address.")
@click.option(
    "--isolated", "--internal", "isolated", is_flag=True, help="Containers reach each other, and nothing else."
)
@click.option("--mtu", type=int, metavar="BYTES", help="The MTU of the containers' links.")
@click.option(
    "--allow",
    metavar="ENTRY",
    multiple=True,
    help="Containers reach only this: a name, *.name, address or network, with or without :PORT. Repeatable.",
)
@click.option("--audit", is_flag=True, help="Everything passes, and what no --allow has is logged.")
@click.option(
    "--strict",
    is_flag=True,
    help="With --allow or --audit: a container is taken off an open network that it is connected to later.",
)
@click.option(
    "--allow-overlap", "may_overlap", is_flag=True, help="Make it although others have addresses of its subnet."
)
@click.option(
    "-o",
    "--option",
    "options",
    metavar="KEY=VALUE",
    multiple=True,
    help="Option of the Docker network. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show the list and the docker command, and change nothing.")
@click.argument("name")
@click.argument("configuration", required=False)
@finds_settings
@shows
def create(
    settings: Settings,
    *,
    strict: bool,
    options: tuple[str, ...],
    dry_run: bool,
    name: str,
    configuration: str | None,
    **addressing: Any,  # noqa: ANN401 - the parameters of `parse_wanted`
) -> tuple[Shown, ExitStatus]:
    """Make the Docker network NAME.

    With --subnet or --dhcp its CNI configuration list is made as well, in the first --cni-conf-dir: a bridge with
    masquerading and published ports, or links on a --parent. Otherwise the network gets the existing list
    CONFIGURATION, by default that of its own name.

    With --allow the network is guarded (docs/guarded-networks.md): from its first packet on a container reaches only
    the entries. With --audit it reaches everything, and `egress learn` makes entries of what it has reached.

    Whatever is in the way is refused before anything is changed: addresses of the host, of Docker and of other lists,
    bridges, files, names. Docker gets the flags that this engine needs. --dry-run shows the commands that do the same.
    """
    pairs = parse_pairs(options)
    if CONFIGURATION in pairs:
        raise click.BadParameter(f"{CONFIGURATION} is the argument CONFIGURATION here; leave it out")
    of_list = {key: value for key, value in addressing.items() if key != "isolated"}
    makes_list = any(of_list.values()) or of_list["mtu"] is not None
    if makes_list and configuration is not None:
        raise click.UsageError(f"a network has the existing list {configuration!r}, or options of addresses and links")
    if strict:
        if not (addressing["allow"] or addressing["audit"]):
            raise click.UsageError("--strict is for guarded networks; add --allow ENTRY or --audit")
        pairs[OTHER_NETWORKS] = OtherNetworks.DISCONNECT.value
    if not dry_run:
        _require_daemon(settings)
    with _refusals():
        if makes_list:
            wanted = parse_wanted(name, limits=not BANDWIDTH_OPTIONS.isdisjoint(pairs), **addressing)
            planned = asyncio.run(plan_network(settings, wanted, pairs))
        else:
            list_name, internal = configuration or name, addressing["isolated"]
            planned = asyncio.run(plan_docker_network(settings, name, list_name, pairs, internal=internal))
        if not dry_run:
            asyncio.run(make_network(planned, settings))
    return _show(planned, is_made=not dry_run), ExitStatus.FINE


@network.command(
    "rm",
    cls=Command,
    examples=("network rm blue", "network rm --configuration blue"),
)
@click.option("--configuration", "with_list", is_flag=True, help="Remove its list and its bridge as well.")
@click.argument("name")
@finds_settings
@shows
def rm(settings: Settings, *, with_list: bool, name: str) -> tuple[Shown, ExitStatus]:
    """Remove the Docker network NAME, which has no containers.

    With --configuration the file of its CNI configuration list is removed as well, if no other Docker network has the
    list, and the bridge that `network create` has made. Without such a Docker network, only these are removed.
    """
    _require_daemon(settings)
    with _refusals():
        done = asyncio.run(remove_network(settings, name, with_list=with_list))
    rows: list[JsonObject] = [{"done": one} for one in done]
    return Shown(document=rows, parts=["\n".join(done)]), ExitStatus.FINE


def _require_daemon(settings: Settings) -> None:
    """Raise `DaemonError` if the daemon does not run: Docker would look for it for 15 s."""
    try:
        AdminClient(settings.admin_path).get("settings")
    except DaemonError as exc:
        if not isinstance(exc.__cause__, FileNotFoundError | ConnectionRefusedError):
            raise
        raise DaemonError(
            f"no daemon runs, and nothing was changed; start it: {start_command()}", exc.exit_status
        ) from exc


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the errors of lower layers into a `Refused`, which ends the command with its text."""
    try:
        yield
    except (CniError, KernelError, OSError) as exc:
        raise Refused(str(exc)) from exc


def _show(planned: PlannedNetwork, *, is_made: bool) -> Shown:
    name, file = planned.name, str(planned.file)
    document: JsonObject = {
        "name": name,
        "configuration": planned.configuration,
        "file": file,
        "list": planned.document,
        "commands": list(planned.commands),
        "isMade": is_made,
    }
    made = (f"Docker network {name} has the list {file}", f"next: {planned.run_command}")
    lines = (*made, f"test: cni-bridge test {name}") if is_made else planned.commands
    return Shown(document=document, parts=["\n".join(lines)], notes=planned.notes)
