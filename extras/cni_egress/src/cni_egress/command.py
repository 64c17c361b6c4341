# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-egress`: it runs the daemon. Its options may also be keys of a TOML file, with the same names."""

import tomllib
from pathlib import Path
from typing import Final

import click

from cni_egress import __version__
from cni_egress.daemon import Settings, run
from cni_egress.records import DIRECTORY
from cni_egress.supervisor import configure_logging
from cni_egress.upstream import Server

__all__ = ["main"]

_FILE: Final = Path("/etc/cni-bridge/egress.toml")
_PATH: Final = click.Path(path_type=Path)


def _parse_servers(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Server, ...]:
    try:
        return tuple(map(Server.parse, texts))
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


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


@click.command("cni-egress")
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
    default=10_000,
    show_default=True,
    help="How many responses are remembered.",
)
@click.option(
    "--directory",
    type=_PATH,
    default=DIRECTORY,
    show_default=True,
    help="The records of the plugin; the log of refusals is below it.",
)
@click.option("--user", default="", help="The user to become. Started as root, the daemon keeps CAP_NET_ADMIN only.")
@click.option("--verbose", is_flag=True, help="Log each query that no resolver has answered.")
@click.version_option(__version__, prog_name="cni-egress")
def main(
    *,
    upstream: tuple[Server, ...],
    resolv_conf: Path,
    grace: float,
    cache: int,
    directory: Path,
    user: str,
    verbose: bool,
) -> None:
    """Answer the DNS queries of guarded containers, log what they are refused, and repair the tables."""
    configure_logging(verbose=verbose)
    settings = Settings(
        upstream=upstream, resolv_conf=resolv_conf, grace_s=grace, cache=cache, directory=directory, user=user
    )
    try:
        run(settings)
    except BlockingIOError as exc:
        raise click.ClickException("another cni-egress runs already") from exc
    except (KeyError, OSError) as exc:
        raise click.ClickException(str(exc)) from exc
