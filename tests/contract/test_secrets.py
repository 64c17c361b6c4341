# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No value that may be a credential reaches Docker's reply, or the log above level debug; the place is named."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog

from cnm_bridge.core.settings import LogFormat, LogLevel
from cnm_bridge.system.log import configure_logging
from tests.contract.serving import Served, serving

SECRET: Final = "hunter2-2f9c"
NETWORK: Final = "a1" * 32
TALKATIVE: Final = f"""#!/bin/sh
echo "login {SECRET} refused" >&2
[ "$CNI_COMMAND" = VERSION ] && [ -n "$TALKS" ] && echo "{SECRET}"
exit 1
"""

ARGUMENTS: Final = [
    ({"cni.args.password": f"{SECRET};x"}, "cni.args.password"),
    ({"cni.args.password": f"x={SECRET}"}, "cni.args.password"),
    ({"cni.args.Password": SECRET, "cni.args.password=": SECRET}, "cni.args.password="),
    ({"cni.capability.login": SECRET}, "cni.capability.login"),
    ({"cni.capability.login": f'{{"password": "{SECRET}"'}, "line 1, column"),
    ({"cni.dhcp.client-id": f"{SECRET}\n"}, "cni.dhcp.client-id"),
]
DOCUMENTS: Final = [
    (SECRET, "not"),
    (json.dumps(SECRET), "one text in quotes"),
    (json.dumps({"name": "blue", "plugins": {"password": SECRET}}), "plugins must be an array, not an object"),
    (json.dumps({"name": "blue", "plugins": [SECRET]}), "plugins[0] must be an object, not a string"),
    (json.dumps({"name": {"password": SECRET}, "plugins": []}), "name must be a string, not an object"),
    (
        json.dumps({"name": "blue", "plugins": [{"type": "tiny", "ipam": SECRET}]}),
        "plugins[0].ipam must be an object, not a string",
    ),
]
SECTIONS: Final = [
    (SECRET, "line 1, column 1"),
    (json.dumps({"name": "lan", "ipam": SECRET})[:-1], "line 1, column"),
    (json.dumps(SECRET), "the file must be an object, not a string"),
    (json.dumps({"name": "lan", "ipam": SECRET}), "ipam must be an object, not a string"),
    (json.dumps({"name": "lan", "password": SECRET}), "ipam is missing"),
    (json.dumps({"name": {"password": SECRET}, "ipam": {"type": "tiny"}}), "name must be a string, not an object"),
    (json.dumps({"name": "lan", "ipam": {"type": [SECRET]}}), "type must be a string, not an array"),
    (json.dumps({"name": "lan", "ipam": {"type": "host-local", "ranges": SECRET}}), "ranges must be an array"),
    (json.dumps({"name": "lan", "ipam": {"type": "host-local", "ranges": [[SECRET]]}}), "ranges[0] must be an object"),
    (json.dumps({"name": "lan", "ipam": {"type": "host-local", "subnet": [SECRET]}}), "subnet must be a string"),
    (json.dumps({"name": "lan", "cniVersion": [SECRET], "ipam": {"type": "tiny"}}), "cniVersion"),
]
"""Texts of a file with an IPAM section, and what the error says of them."""


@pytest.fixture(name="log")
def log_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file into which everything is logged as the daemon does, at level debug, until the end of the test."""
    root, ours, before = logging.getLogger(), logging.getLogger("cni_invoker"), structlog.get_config()
    handlers, levels = list(root.handlers), (root.level, ours.level)
    file = tmp_path / "log"
    with file.open("w", encoding="utf-8", buffering=1) as opened:
        monkeypatch.setattr(sys, "stderr", opened)
        configure_logging(LogLevel.DEBUG, LogFormat.JSON, opened)
        yield file
        monkeypatch.undo()
        structlog.configure(**before)
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


@pytest.mark.parametrize(("options", "named"), ARGUMENTS)
def test_options(tmp_path: Path, log: Path, options: dict[str, str], named: str) -> None:
    """An invalid option is named, without its value."""
    error = asyncio.run(create_only(tmp_path, options))
    assert named in error
    check_secrecy(error, log)


@pytest.mark.parametrize(("text", "named"), DOCUMENTS)
def test_files(tmp_path: Path, log: Path, text: str, named: str) -> None:
    """What is wrong with a configuration file is reported with its place, without its content."""
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d/10-blue.conflist").write_text(text, "utf-8")
    error = asyncio.run(create_only(tmp_path, {"cni.network": "blue"}))
    assert "10-blue.conflist" in error
    assert named in error
    assert "configuration.unusable" in check_secrecy(error, log)


@pytest.mark.parametrize(("text", "named"), SECTIONS)
async def test_files_with_an_ipam_section(tmp_path: Path, log: Path, text: str, named: str) -> None:
    """What is wrong with an IPAM section is reported with its place, without its content."""
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d/lan.ipam").write_text(text, "utf-8")
    options = {"cni.ipam": "lan"}
    body = {"AddressSpace": "CniBridgeLocal", "Pool": "", "SubPool": "", "Options": options, "V6": False}
    async with serving(tmp_path) as served:
        _, answer = await served.post("IpamDriver.RequestPool", json.dumps(body).encode())
    error = str(answer["Error"])
    assert "lan.ipam" in error
    assert named in error
    check_secrecy(error, log)


async def test_options_of_two_networks(tmp_path: Path, log: Path) -> None:
    """A network that exists with other options names those that differ."""
    install_network(tmp_path, "exit 1")
    first, second = ({"cni.network": "blue", "cni.args.password": SECRET + end, "cni.args.a": "b"} for end in "xy")
    async with serving(tmp_path) as served:
        await create(served, first)
        error = await create(served, second)
    assert error.endswith("already exists with other options: cni.args.password")
    check_secrecy(error, log)


@pytest.mark.parametrize("talks", ["", "TALKS=1"])
def test_output_of_plugins(tmp_path: Path, log: Path, talks: str) -> None:
    """What a plugin writes without a CNI error is in the log at level debug only."""
    install_network(tmp_path, f"{talks}\n{TALKATIVE}")
    error = asyncio.run(create_only(tmp_path, {"cni.network": "blue"}))
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert {line["level"] for line in lines if SECRET in str(line)} == {"debug"}
    assert SECRET not in error
    assert "exit status 1; its output is logged at level debug" in error + str(lines)


def install_network(directory: Path, script: str) -> None:
    """Write the configuration `blue` and its only plugin, a script."""
    for name in ("net.d", "bin"):
        (directory / name).mkdir()
    (directory / "net.d/10-blue.conflist").write_text(
        json.dumps({"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "tiny"}]}), "utf-8"
    )
    (directory / "bin/tiny").write_text(f"#!/bin/sh\n{script}", "utf-8")
    (directory / "bin/tiny").chmod(0o755)


async def create_only(directory: Path, options: dict[str, str]) -> str:
    """Create a network with a daemon of its own, and return the error."""
    async with serving(directory) as served:
        return await create(served, options)


async def create(served: Served, options: dict[str, str]) -> str:
    """Create the network as dockerd does, and return the error, empty without one."""
    body = {"NetworkID": NETWORK, "Options": {"com.docker.network.generic": options}, "IPv4Data": [], "IPv6Data": []}
    _, answer = await served.post("NetworkDriver.CreateNetwork", json.dumps(body).encode())
    return str(answer.get("Err", ""))


def check_secrecy(error: str, log: Path) -> str:
    """Check that neither a reply nor the log until now has the secret; return the log."""
    logged = log.read_text("utf-8")
    assert SECRET not in error + logged
    return logged
