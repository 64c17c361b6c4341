# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Sockets that systemd passes are used, and systemd receives the daemon's state."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cnm_bridge.daemon import feed_watchdog
from cnm_bridge.system.systemd import is_journal, notifying, take_sockets, take_watchdog_s

TAKE = """
import os, sys
os.environ["LISTEN_PID"] = str(os.getpid())
from cnm_bridge.system.systemd import take_sockets
for name, sock in take_sockets().items():
    print(repr(name), sock.getsockname(), os.get_inheritable(sock.fileno()))
print(sorted(name for name in os.environ if name.startswith("LISTEN")))
"""


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        ({"LISTEN_FDNAMES": "plugin:admin"}, ("plugin", "admin")),
        ({"LISTEN_FDNAMES": "cni-bridge.socket"}, ("cni-bridge.socket", "")),
        ({"LISTEN_FDNAMES": "admin:admin"}, ("admin",)),
        ({}, ("",)),
    ],
)
def test_sockets_are_taken(tmp_path: Path, names: dict[str, str], taken: tuple[str, ...]) -> None:
    """Those from descriptor 3 on are used, by their names; plugins inherit neither them nor their variables."""
    paths = [tmp_path / "first.sock", tmp_path / "second.sock"]
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for listener, path in zip((first, second), paths, strict=True):
            listener.bind(str(path))
            listener.listen()
        done = subprocess.run(
            ["bash", "-c", f'exec "$0" -c "$1" 3<&{first.fileno()} 4<&{second.fileno()}', sys.executable, TAKE],
            env={**os.environ, "LISTEN_FDS": "2", **names},
            pass_fds=[first.fileno(), second.fileno()],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    expected = [f"{name!r} {path} False" for name, path in zip(taken, paths, strict=False)]
    assert done.stdout.splitlines() == [*expected, "[]"]


@pytest.mark.parametrize(
    "environment", [{}, {"LISTEN_PID": "1", "LISTEN_FDS": "1"}, {"LISTEN_PID": "self", "LISTEN_FDS": "many"}]
)
def test_sockets_for_another_process_are_ignored(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Variables with another process ID, or an invalid number, are ignored."""
    for name, value in environment.items():
        monkeypatch.setenv(name, str(os.getpid()) if value == "self" else value)
    assert take_sockets() == {}


def test_the_state_is_sent_to_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leading '@' stands for the NUL byte of an abstract address; plugins do not inherit the variable."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(f"\0cni-bridge-test-{os.getpid()}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@cni-bridge-test-{os.getpid()}")
        with notifying() as notify:
            assert "NOTIFY_SOCKET" not in os.environ
            notify("STOPPING=1")
        assert supervisor.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all"])
def test_a_missing_supervisor_is_ignored(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Without a supervisor, or with an invalid address, nothing is sent and nothing raised."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with notifying() as notify:
        notify("READY=1")


@pytest.mark.parametrize(
    ("variables", "limit_s"),
    [
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),  # another process's
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_taken(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], limit_s: float | None
) -> None:
    """Plugins do not inherit its variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert take_watchdog_s() == limit_s
    assert [name for name in os.environ if name.startswith("WATCHDOG")] == []


async def test_the_watchdog_is_fed_until_cancelled() -> None:
    """Several times within its limit; without a limit not at all."""
    fed = asyncio.Event()
    states: list[str] = []

    def notify(state: str) -> None:
        states.append(state)
        if len(states) > 2:
            fed.set()

    await feed_watchdog(notify, None)
    assert states == []
    async with asyncio.TaskGroup() as tasks:
        feeding = tasks.create_task(feed_watchdog(notify, 0.003))
        await fed.wait()
        feeding.cancel()
    assert set(states) == {"WATCHDOG=1"}


def test_the_journal_is_recognized(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By device and inode, because a redirected stderr inherits the variable too."""
    with (tmp_path / "log").open("w") as file:
        status = os.fstat(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert is_journal(file.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino + 1}")
        assert not is_journal(file.fileno())
        monkeypatch.delenv("JOURNAL_STREAM")
        assert not is_journal(file.fileno())
