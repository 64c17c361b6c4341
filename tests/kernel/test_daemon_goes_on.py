# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What goes wrong in the background, or with the daemon's surroundings, does not end the daemon."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import structlog

from cnm_bridge import daemon as daemon_module
from cnm_bridge.core.settings import Settings
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.driver.networks.engine_import import NetworkNameResolver
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.recovery.unfinished_teardowns import UnfinishedTeardowns
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.log import log_output
from cnm_bridge.system.sockets import listening
from tests.kernel.daemon_process import RunningDaemon, running_daemon
from tests.lab.waiting import wait_until

WATCHDOG_S: Final = 0.6

BACKGROUND: Final = {
    "network names": (NetworkNameResolver, "run"),
    "teardowns": (TeardownQueue, "run"),
    "reconcile": (Reconciler, "run"),
    "DHCP leases": (LeaseKeeper, "run"),
    "sandboxes": (SandboxSync, "run"),
    "watchdog": (daemon_module, "feed_watchdog"),
}


@pytest.mark.parametrize("work", BACKGROUND)
async def test_a_bug_in_background_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """It is logged with the name of the work, which begins again; SIGTERM still stops the daemon."""
    again = asyncio.Event()
    begun = 0

    async def fail_once(*_: object, **__: object) -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise RecursionError("a bug")
        again.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(*BACKGROUND[work], fail_once)
    monkeypatch.setattr(daemon_module, "raise_descriptor_limit", lambda: 1024)
    settings = Settings(
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        docker_host=f"unix://{tmp_path}/no-docker.sock",
    )
    with listening(tmp_path / "s") as sock, structlog.testing.capture_logs() as logged, log_output() as output:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(daemon_module.serve(settings, sock, output))
            await again.wait()
            os.kill(os.getpid(), signal.SIGTERM)
    assert [line["work"] for line in logged if line["event"] == "background.bug"] == [work]
    assert logged[-1]["event"] == "daemon.stopped"


async def test_a_bug_in_the_wait_for_unfinished_teardowns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged, and the daemon answers its calls: otherwise each start would end there."""

    async def fail(_: object) -> None:
        raise KeyError("phase")

    async def add(_: object) -> int:
        return 1

    monkeypatch.setattr(UnfinishedTeardowns, "add", add)
    monkeypatch.setattr(UnfinishedTeardowns, "wait", fail)
    monkeypatch.setattr(daemon_module, "raise_descriptor_limit", lambda: 1024)
    settings = Settings(
        state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=f"unix://{tmp_path}/no-docker.sock"
    )
    with watchdog(tmp_path) as (notified, variables), listening(tmp_path / "s") as sock:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with structlog.testing.capture_logs() as logged, log_output() as output:
            async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
                tasks.create_task(daemon_module.serve(settings, sock, output))
                while await asyncio.to_thread(notified.recv, 100) != b"READY=1":
                    pass
                os.kill(os.getpid(), signal.SIGTERM)
    assert [line["work"] for line in logged if line["event"] == "background.bug"] == ["recovery"]
    assert [line["event"] for line in logged][-1] == "daemon.stopped"


@contextmanager
def watchdog(directory: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """Stand in for systemd: yield the socket that receives the signs of life, and the daemon's variables."""
    path = directory / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(path))
        notified.settimeout(10)
        yield notified, {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}


@contextmanager
def no_descriptors(daemon: RunningDaemon) -> Iterator[None]:
    """Let a daemon have no further descriptor during the block."""
    open_ones = {int(link.name) for link in Path(f"/proc/{daemon.process.pid}/fd").iterdir()}
    before = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    lowest_free = next(number for number in range(1 << 20) if number not in open_ones)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, before)


def test_a_daemon_without_descriptors_and_with_a_watchdog(tmp_path: Path) -> None:
    """It gives its signs of life, logs little, and answers what has waited as soon as it has descriptors again."""
    with watchdog(tmp_path) as (notified, variables), running_daemon(tmp_path / "daemon", env=variables) as daemon:
        assert notified.recv(100) in {b"WATCHDOG=1", b"READY=1"}
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.settimeout(20)
            with no_descriptors(daemon):
                waiting.connect(str(daemon.socket))
                waiting.sendall(b"POST /Plugin.Activate HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
                wait_until(lambda: "listener.not_accepted" in daemon.log, "the line")
                notified.setblocking(False)
                drain(notified)
                notified.settimeout(10)
                assert [notified.recv(100) for _ in range(12)] == [b"WATCHDOG=1"] * 12
                assert daemon.process.poll() is None
                assert daemon.log.count("listener.not_accepted") == 1
                assert len(daemon.log) < 20_000, daemon.log[:20_000]
            assert b"NetworkDriver" in waiting.recv(4096)
        assert daemon.is_answering()


def drain(notified: socket.socket) -> None:
    """Take what has been sent so far."""
    try:
        while True:
            notified.recv(100)
    except BlockingIOError:
        pass
