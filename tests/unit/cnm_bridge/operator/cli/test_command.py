# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each command: its help, its settings, a file or address that is wrong, and a user who is not root."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cnm_bridge.core.errors import BadOption, Refused, UnknownName
from cnm_bridge.operator.cli.admin_client import DaemonError
from cnm_bridge.operator.cli.command import Command, ExitStatus, exits
from cnm_bridge.operator.cli.main import main
from cnm_bridge.operator.cli.options import url


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


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("doctor", ("--quick", "--no-trunc", "--json")),
        ("test", ("--outside", "--json")),
        ("explain", ("--option", "--json")),
    ],
)
def test_only_own_options_are_shown(command: str, own: Sequence[str]) -> None:
    """The daemon's settings are options too, and hidden."""
    text = CliRunner().invoke(main, [command, "--help"]).output
    for name in own:
        assert f"{name} " in text
    assert "--log-level" not in text


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        ("socet = '/x'", "option socet: unknown to cni-bridge; did you mean socket?"),
        ("plugin-timeout = true", "option plugin-timeout: must be a number"),
        ("log-level = 'loud'", "option log-level: "),
    ],
)
@pytest.mark.parametrize("command", [["cleanup"], ["egress", "deny", "blue", "a.example"]])
def test_what_is_wrong_in_the_file_keeps_nobody_from_asking_the_daemon(
    tmp_path: Path, command: Sequence[str], content: str, warning: str
) -> None:
    """It runs with what was there before; the other values of the file count, such as where its socket is."""
    config = tmp_path / "config.toml"
    config.write_text(f"{content}\nadmin-socket = '{tmp_path}/none.sock'\ndocker-host = 'unix://{tmp_path}/engine'\n")
    done = CliRunner().invoke(main, [*command, "--config", str(config)])
    assert f"cni-bridge: warning: {config}: {warning}" in done.stderr
    assert f"{tmp_path}/none.sock" in done.stderr or f"{tmp_path}/engine" in done.stderr
    assert done.exit_code in {1, 3}


@pytest.mark.parametrize(
    ("content", "warning"), [("= =", ""), (f"socket = {'[' * 5000}{']' * 5000}", "its arrays or tables are nested too")]
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: str, warning: str) -> None:
    """As before, but the defaults count."""
    (tmp_path / "config.toml").write_text(content)
    socket = ("--admin-socket", str(tmp_path / "s"))
    done = CliRunner().invoke(main, ["cleanup", *socket, "--config", str(tmp_path / "config.toml")])
    assert done.exit_code == 3
    assert f"warning: {tmp_path}/config.toml: {warning}" in done.stderr
    assert f"no daemon answers on {tmp_path}/s" in done.stderr


@pytest.mark.parametrize(
    "address", ["unix:///run/docker.sock", "tcp://[::1]:2375", "http://localhost:2375", "https://h:1"]
)
def test_an_engine_address(address: str) -> None:
    """A Unix socket, or TCP with or without HTTP's scheme."""
    assert url(address) == address


@pytest.mark.parametrize(
    "address", ["ftp://10.0.0.1:2375", "ssh://host", "/run/docker.sock", "unix://run/docker.sock", ""]
)
def test_an_engine_address_that_is_refused(address: str) -> None:
    """The text shows the address."""
    with pytest.raises(click.BadParameter, match="nor tcp://host:port; set --docker-host") as refused:
        url(address)
    assert repr(address) in str(refused.value)


pytestmark = pytest.mark.slow

AS_ANOTHER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
COMMAND = (sys.executable, "-m", "cnm_bridge")
LIMIT_S = 60.0


def run(*arguments: str, env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run the program as another user."""
    return subprocess.run(
        [*AS_ANOTHER, *COMMAND, *arguments],
        env={**os.environ, **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.fixture(scope="module", name="env")
def make_env() -> Iterator[Mapping[str, str]]:
    """Directories of a daemon, which only root can enter, as settings of the environment."""
    if os.geteuid():
        pytest.skip("only root can run a command as another user")
    if run("--version", env={}).returncode:
        pytest.skip("other users cannot enter the directory of the source")
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        where.chmod(0o755)
        for directory in ("run", "state", "sockets"):
            (where / directory).mkdir(mode=0o700)
        yield {
            "CNI_BRIDGE_RUN_DIR": f"{where}/run",
            "CNI_BRIDGE_STATE_DIR": f"{where}/state",
            "CNI_BRIDGE_SOCKET": f"{where}/sockets/s",
            "CNI_BRIDGE_CNI_CONF_DIR": f"{where}/sockets",
            "DOCKER_HOST": f"unix://{where}/sockets/docker",
        }


@pytest.mark.parametrize(
    ("command", "status"),
    [
        *(
            (name, 3)
            for name in ("status", "ls", "inspect --check", "inspect web", "cleanup", "cleanup --run", "events")
        ),
        *(("network create blue --subnet 10.22.0.0/16", 3), ("network rm blue", 3)),
        *(("state export", 1), ("state export /root/x", 1), ("serve", 1)),
        *(("doctor", 1), ("explain blue", 2)),
    ],
)
def test_run_as_root(env: Mapping[str, str], command: str, status: int) -> None:
    """The error, or what a command says before it does what every user can, has no traceback and says what to do."""
    done = run(*command.split(), env=env)
    assert (done.returncode, "run as root (sudo): " in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
