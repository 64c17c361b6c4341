# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-bridge`. Each subcommand is imported when it is used; the list of all of them needs no imports."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

import click

from cnm_bridge import __version__
from cnm_bridge.operator.cli.command import NAME, CommandGroup

_SECTIONS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "Start": {
        "network": (
            "network.network",
            "Make and remove Docker networks; `docker network` does everything else with them.",
        ),
        "explain": (
            "explain.explain",
            "Show what a container on NETWORK would get; of the plugins, only VERSION is run.",
        ),
        "test": (
            "connectivity.test",
            "Start two containers on NETWORK, and test what they reach: each other, gateway, outside, names, a port.",
        ),
    },
    "Look": {
        "ls": (
            "ls.ls",
            "List containers on networks of cni-bridge, with addresses and published ports; with NETWORK, those on it.",
        ),
        "inspect": (
            "inspect.inspect",
            "Show the endpoints of NAME, or with --check what differs from what their plugins made.",
        ),
        "status": ("status.status", "Show whether anything of the running daemon needs attention."),
        "events": (
            "events.events",
            "Show calls of Docker, executions of plugins and changes of phases as they happen, until Ctrl-C.",
        ),
        "doctor": ("doctor.doctor", "Examine the host: kernel, firewall, engine, plugins, addresses, installation."),
    },
    "Guarded networks": {
        "egress": ("egress.egress", "Show and change what containers of guarded networks reach."),
    },
    "Repair": {
        "cleanup": ("cleanup.cleanup", "Show failed teardowns and unclaimed addresses; with --run, clean up."),
        "state": ("state.state", "Export and import the stored state."),
    },
    "Daemon": {
        "serve": ("serve.serve", "Run the network driver, until SIGTERM."),
    },
}
"""The sections of the help, and in them each subcommand: module and function in `cnm_bridge.operator.cli.commands`, and
the first sentence of its help."""
_COMMANDS: Final = {name: one for section in _SECTIONS.values() for name, one in section.items()}


class _Imported(Mapping[str, click.Command]):
    """The subcommands; each is imported when it is looked up, so that `serve` listens sooner."""

    def __getitem__(self, name: str) -> click.Command:
        module, _, function = _COMMANDS[name][0].partition(".")
        try:
            command: click.Command = getattr(import_module(f"cnm_bridge.operator.cli.commands.{module}"), function)
        except KeyError as exc:  # `get` would take it for an unknown subcommand
            raise ImportError(f"subcommand {name} cannot be imported") from exc
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _MainGroup(CommandGroup):
    def first_sentence(self, name: str) -> str:
        """Return it without importing the subcommand."""
        return _COMMANDS[name][1]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own
        """Write the subcommands by what they are for."""
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, sentence) for name, (_, sentence) in commands.items()])


@click.group(
    cls=_MainGroup,
    commands=_Imported(),
    examples=("doctor", "network create blue --subnet 10.22.0.0/16", "status"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=NAME, message="%(prog)s %(version)s")
def main() -> None:
    """Docker networks made by CNI plugins."""
