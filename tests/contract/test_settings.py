# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The settings at the admin socket: commands use those of the daemon that runs."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cni_bridge_spec import load_validator
from cnm_bridge.core.settings import AttachOption, LogLevel, Scope, Settings
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.daemon_settings import daemon_settings
from cnm_bridge.operator.cli.main import main
from cnm_bridge.operator.cli.options import SETTINGS, read_config_file, settings_from, with_settings
from tests.contract.serving import serving
from tests.lab.unix_http import request
from tests.plugins import FakePlugins

CHANGED = Settings(
    config=Path("/etc/cni-bridge/other.toml"),
    driver="other:latest",
    metrics_listen="127.0.0.1:0",
    plugin_timeout_s=7.5,
    attach=AttachOption.MOVE,
    scope=Scope.GLOBAL,
    cni_arg_names=("PortName", "zone"),
    log_level=LogLevel.DEBUG,
)


def found_by(*arguments: str) -> Settings:
    """Return the settings that a command finds."""

    @click.command()
    @with_settings(*SETTINGS, tolerant=True)
    def command(*, settings: Settings) -> Settings:
        return daemon_settings(settings)

    found: Settings = command.main([*arguments], standalone_mode=False)
    return found


@pytest.mark.parametrize("changed", [Settings(), CHANGED], ids=["defaults", "changed"])
async def test_all_settings_of_the_daemon_are_found(
    tmp_path: Path, changed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a command that is given only the socket, whatever its own environment has."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    async with serving(tmp_path, changed) as served:
        status, document = await asyncio.to_thread(request, served.admin, "GET", "/v1/settings")
        found = await asyncio.to_thread(found_by, "--admin-socket", str(served.admin))
    assert status == 200
    load_validator("admin/settings")(document)
    wanted = replace(
        changed,
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        cni_conf_dirs=(tmp_path / "net.d",),
        cni_bin_dirs=(tmp_path / "bin",),
        docker_host=f"unix://{tmp_path}/no-docker.sock",
        socket=tmp_path / "s",
        admin_socket=served.admin,
        drain_timeout_s=5.0,
    )
    assert found == wanted


async def test_explain_shows_what_the_daemon_would_do(tmp_path: Path) -> None:
    """With its directories, driver and attach mode, and not with those of the operator's file."""
    plugins = FakePlugins(tmp_path / "bin")
    for name in ("bridge", "host-local"):
        plugins.install(name)
    conf, file = tmp_path / "net.d" / "blue.conflist", tmp_path / "config.toml"
    conf.parent.mkdir()
    plugin = {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
    conf.write_text(json.dumps({"cniVersion": "1.0.0", "name": "blue", "plugins": [plugin]}))
    file.write_text("attach = 'move'")
    async with serving(tmp_path, Settings(attach=AttachOption.SANDBOX)) as served:
        given = ("--config", str(file), "--admin-socket", str(served.admin), "--json", "blue")
        done = await asyncio.to_thread(CliRunner().invoke, main, ["explain", *given])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["source"] == str(conf)
    reason = "the daemon's --attach=sandbox; Docker does not know the addresses: plugin static is not installed"
    assert found["attach"] == {"mode": "sandbox", "reason": reason}
    assert found["plugins"][0]["environment"]["CNI_NETNS"].startswith(str(tmp_path / "run"))
    assert f"unix://{tmp_path}/no-docker.sock" in done.stderr


async def test_mistakes_in_a_file_that_the_daemon_does_not_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A second instance has a file of its own: doctor examines that, and the command says what it leaves out."""
    default, own = tmp_path / "config.toml", tmp_path / "second.toml"
    default.write_text("socet = '/x'")
    own.write_text("plugin-timeot = 5\nscope = 'global'")
    async with serving(tmp_path, Settings(config=own)) as served:
        given = {"CNI_BRIDGE_CONFIG": str(default), "CNI_BRIDGE_ADMIN_SOCKET": str(served.admin)}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            found = await asyncio.to_thread(found_by)
    assert found.config == own
    assert "option socet: unknown" in capfd.readouterr().err
    with click.Context(main):
        values, mistakes = read_config_file(found.config)
    assert values == {"scope": "global"}
    assert [mistake.partition(";")[0] for mistake in mistakes] == [
        f"{own}: option plugin-timeot: unknown to cni-bridge"
    ]


async def test_the_command_line_counts_more(tmp_path: Path) -> None:
    """What is given to the command replaces the daemon's own."""
    async with serving(tmp_path) as served:
        given = ("--admin-socket", str(served.admin), "--cni-conf-dir", "/elsewhere")
        found = await asyncio.to_thread(found_by, *given)
    assert (found.cni_conf_dirs, found.state_dir) == ((Path("/elsewhere"),), tmp_path / "state")


def test_without_a_daemon_the_options_count(tmp_path: Path) -> None:
    """They are the defaults, and what is given."""
    path = tmp_path / "nothing"
    assert found_by("--admin-socket", str(path)) == settings_from({"admin_socket": path})


@pytest.mark.parametrize(
    ("setting", "value"),
    [("state-dir", None), ("docker-host", 5), ("cni-arg-names", [5]), ("cni-conf-dir", "/x"), ("attach", "future")],
)
def test_values_that_this_version_does_not_know(
    setting: str, value: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a newer daemon: the command's own settings count, and it says so."""
    (tmp_path / "a").touch()
    monkeypatch.setattr(AdminClient, "get", lambda *_: {"driver": "newer", setting: value})
    found = found_by("--admin-socket", str(tmp_path / "a"))
    assert found.driver == Settings().driver
    assert "the daemon's settings are not known" in capsys.readouterr().err
