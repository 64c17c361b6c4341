# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options of `cni-egress`, on the command line and in a file."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cni_egress import command
from cni_egress.daemon import Settings
from cni_egress.upstream import Server


@pytest.fixture(name="started")
def record_starts(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings with which the daemon would run."""
    found: list[Settings] = []
    monkeypatch.setattr(command, "run", found.append)
    return found


def test_a_file(tmp_path: Path, started: list[Settings]) -> None:
    """Its keys are the options; the command line wins."""
    path = tmp_path / "egress.toml"
    path.write_text('upstream = ["10.0.0.1", "10.0.0.2:5353"]\ngrace = 60\nresolv-conf = "/x"\nuser = "egress"\n')
    result = CliRunner().invoke(command.main, ["run", "--config", str(path), "--grace", "30"])
    assert result.exit_code == 0, result.output
    (settings,) = started
    assert settings.upstream == (Server("10.0.0.1"), Server("10.0.0.2", 5353))
    assert (settings.grace_s, settings.resolv_conf, settings.user) == (30, Path("/x"), "egress")
    assert settings.metrics_listen is None


def test_an_address_for_metrics(started: list[Settings]) -> None:
    """It has a port, for IPv6 behind brackets."""
    for text, server in (("127.0.0.1:53", Server("127.0.0.1", 53)), ("[::1]:9792", Server("::1", 9792))):
        CliRunner().invoke(command.main, ["run", "--metrics-listen", text])
        assert started.pop().metrics_listen == server


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graze = 5", "unknown key graze; there are cache, directory, grace"),
        ("grace = 0", "0 is not in the range x>=1"),
        ('upstream = ["dns.example"]', "'dns.example' does not appear to be an IPv4 or IPv6 address"),
        ("grace = ", "cannot be read"),
        ('metrics-listen = "127.0.0.1"', "'127.0.0.1' has no port; write ADDRESS:PORT"),
        ('metrics-listen = "localhost:9792"', "'localhost' does not appear to be an IPv4 or IPv6 address"),
    ],
)
def test_a_bad_file(tmp_path: Path, started: list[Settings], text: str, message: str) -> None:
    """The error says what is wrong, and nothing starts."""
    path = tmp_path / "egress.toml"
    path.write_text(text)
    result = CliRunner().invoke(command.main, ["run", "--config", str(path)])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not started


def test_a_missing_file(started: list[Settings]) -> None:
    """One that was named must exist."""
    result = CliRunner().invoke(command.main, ["run", "--config", "/none/egress.toml"])
    assert (result.exit_code, started) == (2, [])
