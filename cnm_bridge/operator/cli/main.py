# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-bridge`. Its subcommands are imported when they are used."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

import click

from cnm_bridge import __version__
from cnm_bridge.operator.cli.command_group import CommandGroup

__all__ = ["main"]

_COMMANDS: Final = {
    "check": "check.check",
    "doctor": "doctor.doctor",
    "events": "events.events",
    "explain": "explain.explain",
    "gc": "clean_up.gc_command",
    "inspect": "inspect.inspect",
    "install-spec": "install_spec.install_spec",
    "ls": "ls.ls",
    "network": "network.network",
    "release": "clean_up.release",
    "retry": "clean_up.retry",
    "serve": "serve.serve",
    "state": "state.state",
    "status": "status.status",
    "sysdump": "sysdump.sysdump",
    "test": "connectivity.test",
    "top": "events.top",
}
"""Module and function of each subcommand, in `cnm_bridge.operator.cli.commands`."""


class _Imported(Mapping[str, click.Command]):
    """The subcommands; each is imported when it is looked up, so that `serve` listens sooner."""

    def __getitem__(self, name: str) -> click.Command:
        module, _, function = _COMMANDS[name].partition(".")
        try:
            command: click.Command = getattr(import_module(f"cnm_bridge.operator.cli.commands.{module}"), function)
        except KeyError as exc:  # `get` would take it for an unknown subcommand
            raise ImportError(f"subcommand {name} cannot be imported") from exc
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


@click.group(
    cls=CommandGroup,
    commands=_Imported(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="cni-bridge", message="%(prog)s %(version)s")
def main() -> None:
    """Docker networks made by CNI plugins."""
