# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Commands that take all settings of the daemon: their help, a file that is wrong, and addresses."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.cli.main import main
from cnm_bridge.operator.cli.setting import check_engine_address


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


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    """As before, but the defaults count."""
    (tmp_path / "config.toml").write_text("= =")
    socket = ("--admin-socket", str(tmp_path / "s"))
    done = CliRunner().invoke(main, ["cleanup", *socket, "--config", str(tmp_path / "config.toml")])
    assert done.exit_code == 3
    assert f"warning: {tmp_path}/config.toml: " in done.stderr
    assert f"no daemon answers on {tmp_path}/s" in done.stderr


@pytest.mark.parametrize(
    "address", ["unix:///run/docker.sock", "tcp://[::1]:2375", "http://localhost:2375", "https://h:1"]
)
def test_an_engine_address(address: str) -> None:
    """A Unix socket, or TCP with or without HTTP's scheme."""
    check_engine_address(address)


@pytest.mark.parametrize(
    "address", ["ftp://10.0.0.1:2375", "ssh://host", "/run/docker.sock", "unix://run/docker.sock", ""]
)
def test_an_engine_address_that_is_refused(address: str) -> None:
    """The text shows the address and names the option."""
    with pytest.raises(Refused, match="is neither unix:///path nor tcp://host:port; set --docker-host") as refused:
        check_engine_address(address)
    assert repr(address) in str(refused.value)
