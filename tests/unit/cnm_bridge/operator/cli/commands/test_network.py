# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge network`: what it does not do, `docker network` does; what it cannot do changes nothing."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cnm_bridge.operator.cli import admin_client
from cnm_bridge.operator.cli.main import main


def network(tmp_path: Path, subcommand: str, *arguments: str) -> Result:
    """Run the command without a daemon and without an engine."""
    places = (
        f"--admin-socket={tmp_path}/admin.sock",
        f"--cni-conf-dir={tmp_path}/net.d",
        f"--docker-host=unix://{tmp_path}/docker.sock",
    )
    return CliRunner().invoke(main, ["network", subcommand, *places, *arguments])


@pytest.mark.parametrize(
    ("subcommand", "hint"),
    [("prune", "docker network"), ("ls", "cni-bridge ls --networks"), ("inspect", "docker network inspect")],
)
def test_a_subcommand_of_docker_has_a_hint(subcommand: str, hint: str) -> None:
    """The error says what to use instead."""
    result = CliRunner().invoke(main, ["network", subcommand, "blue"])
    assert (result.exit_code, f"No such command {subcommand!r}" in result.output, hint in result.output) == (
        2,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("subcommand", "arguments"),
    [("create", ("blue",)), ("create", ("blue", "--subnet", "10.22.0.0/16")), ("rm", ("blue",)), ("remove", ("blue",))],
)
@pytest.mark.parametrize(
    ("has_systemd", "command"), [(True, "systemctl start cni-bridge"), (False, "cni-bridge serve &")]
)
def test_without_a_daemon(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subcommand: str,
    arguments: tuple[str, ...],
    command: str,
    *,
    has_systemd: bool,
) -> None:
    """The error has the command that starts it on this host, and nothing was written."""
    monkeypatch.setattr(admin_client, "_SYSTEMD", Path("/" if has_systemd else "/dev/null"))
    done = network(tmp_path, subcommand, *arguments)
    assert done.exit_code == 3
    assert done.output == f"cni-bridge: no daemon runs, and nothing was changed; start it: {command}\n"
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    """A dry run needs it, because the flags depend on it."""
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(f"{tmp_path}/docker.sock")
        done = network(tmp_path, "create", "--dry-run", "blue", "--subnet", "10.22.0.0/16")
    assert (done.exit_code, "cannot be reached: Connection refused" in done.output) == (1, True)


def test_an_empty_option_is_not_given(tmp_path: Path) -> None:
    """A script's empty variable asks for the existing list."""
    done = network(tmp_path, "create", "--dry-run", "blue", "--parent", "")
    assert (done.exit_code, 'no net configuration with name "blue"' in done.output) == (1, True), done.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("blue", "--subnet", "10.22.0.1/16"), "did you mean 10.22.0.0/16?"),
        (("blue", "--parent", "eth0"), "--subnet 10.22.0.0/16"),
        (("blue", "red", "--subnet", "10.22.0.0/16"), "existing list 'red'"),
        (("blue", "--mtu", "1500"), "--subnet 10.22.0.0/16"),
        (("blue", "-o", "cni.ips"), "is not KEY=VALUE"),
        (("blue", "--subnet", "10.22.0.0/16", "-o", "cni.netwrk=red"), "did you mean cni.network?"),
        (("blue", "--subnet", "10.22.0.0/16", "-o", "cni.network=red"), "leave it out"),
        (("blue", "--subnet", "10.22.0.0/16", "--strict"), "add --allow ENTRY or --audit"),
    ],
)
def test_wrong_options(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    """The text says what to write instead; the exit status is that of a wrong usage."""
    done = network(tmp_path, "create", "--dry-run", *arguments)
    assert (done.exit_code, text in done.output) == (2, True), done.output
