# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What goes wrong in the background, in events of the engine or in the daemon's surroundings, does not end it."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from cni_bridge_spec import JsonObject, as_object, find_str
from cni_bridge_state import EndpointId
from cni_bridge_state.store import Store
from cnm_bridge import daemon as daemon_module
from cnm_bridge.assembly import assemble
from cnm_bridge.core.link.plan_sandbox import Placement
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.driver.networks.engine_import import NetworkNameResolver
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.recovery.unfinished_teardowns import UnfinishedTeardowns
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.known_version import KnownVersion
from cnm_bridge.system.log import log_output
from cnm_bridge.system.scheduling import KeyedLocks
from cnm_bridge.system.sockets import open_sockets
from tests.kernel.daemon_process import RunningDaemon, running_daemon
from tests.kernel.engine import FakeEngine, closing
from tests.kernel.namespace import Namespace
from tests.lab.unix_http import request
from tests.lab.waiting import wait_until
from tests.records import endpoint, put, settings_in

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
    settings = settings_in(tmp_path, socket=tmp_path / "s")
    with open_sockets(settings) as sockets, structlog.testing.capture_logs() as logged, log_output() as output:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(daemon_module.serve(settings, sockets, output))
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
    settings = settings_in(tmp_path, socket=tmp_path / "s")
    with watchdog(tmp_path) as (notified, variables), open_sockets(settings) as sockets:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with structlog.testing.capture_logs() as logged, log_output() as output:
            async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
                tasks.create_task(daemon_module.serve(settings, sockets, output))
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


TUNED: JsonObject = {
    "link": {"name": "eth0", "kind": "veth", "mac": "02:00:00:00:00:01", "mtu": 1500, "noarp": False},
    "addresses": [],
    "routes": [],
    "rules": [],
    "neighbours": [],
    "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "1"}],
}


async def test_invalid_events_do_not_end_reconcile(store: Store, tmp_path: Path) -> None:
    """After an invalid event, reconcile opens the event stream again, as after any end of the stream."""
    engine = FakeEngine(tmp_path / "engine", events=[b"7\n", b"[]\n"])
    settings = settings_in(tmp_path, docker_host=engine.host)
    async with engine.running(), closing(assemble(settings, store)) as daemon, asyncio.TaskGroup() as tasks:
        reconcile = tasks.create_task(daemon.reconciler.run())
        async with asyncio.timeout(30):
            while engine.followed < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not reconcile.done()
        reconcile.cancel()


async def test_an_invalid_snapshot_does_not_end_the_sync(store: Store, kernel: Kernel) -> None:
    """An endpoint that cannot be synchronised stops neither the others nor the start of the daemon."""
    locks: KeyedLocks[EndpointId] = KeyedLocks()
    sandbox_sync = SandboxSync(store, kernel, locks, KnownVersion(store))
    record = replace(endpoint("1" * 64), snapshot={"link": 7}, sandbox_key="/run/docker/netns/1")
    await put(store, record)
    with structlog.testing.capture_logs() as logged:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(sandbox_sync.run())
            async with asyncio.timeout(20):
                while not logged:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            assert not running.done()
            running.cancel()
    assert [(line["event"], line["endpoint_id"]) for line in logged] == [("sync.bug", record.id)]


async def test_links_that_never_arrive_do_not_delay_new_ones(store: Store, kernel: Kernel, sandbox: Namespace) -> None:
    """Links of the previous run are awaited for ten seconds each; a new container is watched at once."""
    for number in range(1, 21):
        record = endpoint(f"{number:064x}")
        await put(store, replace(record, snapshot=TUNED, sandbox_key=str(sandbox.path)))
    sandbox_sync = SandboxSync(store, kernel, KeyedLocks(), KnownVersion(store))
    with structlog.testing.capture_logs() as logged:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(sandbox_sync.run())
            await asyncio.sleep(0.2)  # as many as may are awaited now
            none = Placement(addresses=(), destinations=())
            assert not await kernel.link_in_sandbox(sandbox.path.with_name("none"), "new").wait_placed(
                none, limit_s=60.0
            )
            running.cancel()
    assert logged == []


WAITING_BYTES: Final = 1 << 20
"""How much of its log the daemon keeps for a slow reader."""


@contextmanager
def unread_daemon(directory: Path) -> Iterator[tuple[RunningDaemon, int]]:
    """Yield a daemon whose log leads to a pipe, and the end at which it could be read."""
    reading, writing = os.pipe()
    try:
        with running_daemon(directory, stderr=writing) as daemon:
            os.close(writing)
            writing = -1
            yield daemon, reading
    finally:
        os.close(reading)
        if writing != -1:
            os.close(writing)


def fill_log(daemon: RunningDaemon) -> None:
    """Make the daemon log more than a pipe and its own memory hold: calls that it refuses, each in time."""
    unknown = "x" * 4000
    options: JsonObject = {"com.docker.network.generic": {"cni.network": unknown}}
    for _ in range((WAITING_BYTES + (256 << 10)) // len(unknown)):
        body: JsonObject = {"NetworkID": "0123456789ab", "Options": options, "IPv4Data": [], "IPv6Data": []}
        _, answer = request(daemon.socket, "POST", "/NetworkDriver.CreateNetwork", body, timeout_s=5)
        assert find_str(as_object(answer, "the answer"), "Err")


def dropped_lines(daemon: RunningDaemon) -> float:
    """Return the metric."""
    scrape = ("curl", "-sf", "-m", "5", "--unix-socket", str(daemon.admin), "http://localhost/metrics")
    text = subprocess.run(scrape, check=True, capture_output=True, text=True).stdout
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return families["cni_bridge_log_lines_dropped"].samples[0].value


def test_calls_and_commands_are_answered(tmp_path: Path) -> None:
    """Docker's calls, `status` and SIGTERM do not wait for the log; what was dropped is a metric."""
    with unread_daemon(tmp_path) as (daemon, _):
        fill_log(daemon)
        assert request(daemon.admin, "GET", "/v1/status", timeout_s=5)[0] == 200
        assert dropped_lines(daemon) > 0
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(10) == 0


def test_the_log_goes_on(tmp_path: Path) -> None:
    """As soon as the log is read, the lines that waited come in order, then one with the number of those dropped."""
    with unread_daemon(tmp_path) as (daemon, reading):
        fill_log(daemon)
        dropped = dropped_lines(daemon)
        text = b""

        def has_report() -> bool:
            nonlocal text
            text += os.read(reading, 1 << 16)
            return b"log.lines_dropped" in text

        wait_until(has_report, "the report")
        lines = [json.loads(line) for line in text.splitlines()]
        times = [line["timestamp"] for line in lines]
        assert times == sorted(times)
        assert [(line["event"], line["count"]) for line in lines[-1:]] == [("log.lines_dropped", dropped)]
