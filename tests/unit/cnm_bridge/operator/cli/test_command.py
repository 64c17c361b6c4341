# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The help of each command: nothing is cut, and it has examples, which can be parsed, and the exit status."""

import shlex
from collections.abc import Iterator, Sequence

import click
import pytest
from click.testing import CliRunner

from cnm_bridge.core.errors import BadOption, Refused, UnknownName
from cnm_bridge.operator.cli.admin_client import DaemonError
from cnm_bridge.operator.cli.command import Command, ExitStatus, exits
from cnm_bridge.operator.cli.main import main


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, Command]]:
    """Yield a command and all below it, with their names."""
    assert isinstance(command, Command)
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, further in command.commands.items():
            yield from commands(further, *path, name)


COMMANDS = [*commands(main, "cni-bridge")]


def parse(words: Sequence[str]) -> click.Context:
    """Parse a command line as the program does, without running it."""
    command: click.Command = main
    first, *rest = words
    assert first == "cni-bridge"
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    return command.make_context(command.name, rest)


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_the_help_is_complete(name: str, command: Command) -> None:
    """Its sections follow each other, and its examples can be parsed."""
    text = CliRunner().invoke(main, [*name.split()[1:], "--help"], prog_name="cni-bridge").output
    sections = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert sections[-2:] == ["Examples:", "Exit status:"]
    assert "...\n" not in text.partition("\n")[2].partition("Examples:")[0]
    for example in command.examples:
        assert f"\n  {example}\n" in text
        parse(shlex.split(example))


def test_hidden_options_and_own_exit_statuses() -> None:
    """Commands that find the daemon's settings have its options; `serve` ends with 78 if one is wrong."""
    for words in (["doctor"], ["explain"], ["network", "create"]):
        text = CliRunner().invoke(main, [*words, "--help"]).output
        assert "\nThe options of `cni-bridge serve` are accepted as well.\n" in text
    text = CliRunner().invoke(main, ["serve", "--help"]).output
    assert [line.split()[0] for line in text.partition("Exit status:\n")[2].splitlines()] == ["0", "1", "78"]
    assert "accepted as well" not in text


def test_a_wrong_address_outside() -> None:
    """It is a wrong option, as the help says."""
    done = CliRunner().invoke(main, ["test", "--outside", "nope", "--admin-socket", "/none/s", "blue"])
    assert (done.exit_code, "option --outside: nope is not an IP address" in done.output) == (2, True)


def test_only_the_nearest_option_is_suggested() -> None:
    """Other options that are a little like it are no help."""
    done = CliRunner().invoke(main, ["network", "create", "green", "--subnt", "10.9.0.0/16"])
    assert (done.exit_code, "'--subnet'?" in done.output, "--json" in done.output) == (2, True, False)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownName("there is no blue"), ExitStatus.USAGE),
        (BadOption("--mtu", "is too large"), ExitStatus.USAGE),
        (Refused("it is in use"), ExitStatus.FINDINGS),
        (DaemonError("no answer", ExitStatus.NO_DAEMON), ExitStatus.NO_DAEMON),
    ],
)
def test_an_error_ends_a_command(error: Exception, status: ExitStatus, capsys: pytest.CaptureFixture[str]) -> None:
    """With its text, and a status that says whose fault it is."""

    def fail() -> ExitStatus:
        raise error

    with pytest.raises(SystemExit) as ended:
        exits(fail)()
    assert ended.value.code == status
    assert str(error) in capsys.readouterr().err
