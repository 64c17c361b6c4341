# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge network create`: makes a Docker network with the options that its engine needs."""

import shlex
import sys
from pathlib import Path
from typing import Final

import click

from cnm_bridge.core.errors import BridgeError, Refused
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.settings.all_settings import DIRECTORIES, DOCKER_HOST, DRIVER, SOCKET
from cnm_bridge.operator.cli.settings.options import with_settings

__all__ = ["network"]

_ENGINE_LIMIT_S = 60.0


_ELSEWHERE: Final = {
    **dict.fromkeys(("rm", "remove", "delete"), "`docker network rm` removes one"),
    **dict.fromkeys(("ls", "list"), "`cni-bridge ls --networks` lists them"),
    "inspect": "`docker network inspect` and `cni-bridge ls --networks` show them",
    **dict.fromkeys(("connect", "disconnect", "prune"), "`docker network` does that"),
}
"""Where the subcommands of `docker network` are that this command does not have."""


class _NetworkGroup(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; the error for one of `docker network` says what to use."""
        if args and args[0] in _ELSEWHERE:
            ctx.fail(f"No such command {args[0]!r}: {_ELSEWHERE[args[0]]}.")
        return super().resolve_command(ctx, args)


@click.group("network", cls=_NetworkGroup)
def network() -> None:
    """Make Docker networks; `docker network` does everything else with them."""


@network.command("create")
@with_settings(*(one for one in DIRECTORIES if one.name == "cni-conf-dir"), DOCKER_HOST, SOCKET, DRIVER)
@click.option(
    "-o", "--option", "options", metavar="KEY=VALUE", multiple=True, help="Option of the network. Repeatable."
)
@click.option("--internal", is_flag=True, help="Without a gateway.")
@click.option("--dry-run", is_flag=True, help="Only print the docker command.")
@click.argument("name")
@click.argument("configuration", required=False)
def create(
    *,
    cni_conf_dirs: tuple[Path, ...],
    docker_host: str,
    socket: Path,
    driver: str,
    options: tuple[str, ...],
    internal: bool,
    dry_run: bool,
    name: str,
    configuration: str | None,
) -> None:
    """Make the Docker network NAME of the CNI network configuration CONFIGURATION, by default that of the same name.

    Docker must not choose addresses, because the plugins do. How to switch that off depends on the engine, which is
    asked. The docker command that does the same is printed to standard error, the network's name to standard output.

    The exit status is 0; 1 if the network cannot be made; 2 if an option is wrong.
    """
    import asyncio  # noqa: PLC0415

    from cni_invoker import CniError, ConfigurationDirectories  # noqa: PLC0415 - slow, and would delay `--help`
    from cnm_bridge.core.planning.options.cni_options import parse_options  # noqa: PLC0415
    from cnm_bridge.system.engine import Engine  # noqa: PLC0415

    engine = Engine(docker_host, _ENGINE_LIMIT_S)
    try:
        found = ConfigurationDirectories(cni_conf_dirs).index().find(configuration or name)
        given = {"cni.network": found.name, **_parse(options)}
        parse_options(given)
        release = asyncio.run(engine.release())
        if release is None:
            raise Refused(
                "the engine does not report its version; use docker network create, see docs/configuration.md"
            )
        flags = ["--ipv4=false"] if release.makes_sandbox_first else ["--ipam-driver", "null"]
        flags += ["--internal"] if internal else []
        settings = [part for key, value in given.items() for part in ("-o", f"{key}={value}")]
        click.echo(
            shlex.join(["docker", "network", "create", "-d", driver or socket.stem, *flags, *settings, name]), err=True
        )
        if not dry_run:
            addressing = {"EnableIPv4": False} if release.makes_sandbox_first else {"IPAM": {"Driver": "null"}}
            wanted = {
                "Name": name,
                "Driver": driver or socket.stem,
                "Options": given,
                "Internal": internal,
                "CheckDuplicate": True,
            }
            asyncio.run(engine.create_network(wanted | addressing))
            click.echo(name)
    except (BridgeError, CniError, OSError) as exc:
        click.echo(f"cni-bridge: {exc}", err=True)
        sys.exit(ExitStatus.FINDINGS)


def _parse(options: tuple[str, ...]) -> dict[str, str]:
    pairs = [option.partition("=") for option in options]
    for key, equals, _ in pairs:
        if not equals:
            raise click.BadParameter(f"{key!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}
