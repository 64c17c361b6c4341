# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab --no-dockerd -- python -m tests.bench.records [N …]`: what many endpoints cost the daemon.

A daemon is started on N records, with their links in sandboxes, and with an engine that has all of the endpoints; each
sandbox needs a sync. The plugins only make a link. The columns:

* *listening*, *first answer*: from the start of the process until Docker can connect, and until a call that needs the
  records is answered; in brackets the CPU time of all its threads until then, which a busy machine changes less. The
  code is byte-compiled before, as in an installation;
* *stall*: the longest time for which the event loop was blocked while the daemon started, synchronised all sandboxes
  and did a round of reconcile; then in the first minute of tearing everything down after a reboot. In brackets the
  longest without the time for which its thread was ready and no processor was free; and the most CPU time of it;
* *stall: scrape*: the same during scrapes of the metrics, the first of which imports the library;
* *create*: the median of 20 CreateEndpoint calls, in brackets the CPU time of the daemon's threads for each of them;
* *descriptors*: the most that were open at once, without sockets;
* *RSS*: at the end, and the most while everything was torn down.
"""

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from cni_bridge_spec import JsonObject, render_json
from cnm_bridge.system.kernel import Kernel
from tests.bench.endpoints import CONFIGURATION, NETWORKS, SANDBOXES, fill, id_of, make_sandboxes
from tests.bench.watch import QUIET_S, Watch, watched
from tests.kernel.engine import FakeEngine, network
from tests.lab.unix_http import request

COUNTS: Final = (1, 10, 100, 1000, 2000)
CREATES: Final = 20
SCRAPES: Final = 5
PLUGIN: Final = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD)
    nsenter --net="$CNI_NETNS" ip link add eth0 type veth peer name "bench$$" netns $$
    echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}]}' ;;
esac
"""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
QUIET_LIMIT_S: Final = 300.0
AFTER_REBOOT_S: Final = 60.0
"""How long the daemon is watched while it tears down the endpoints of an earlier boot: thousands take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A daemon's directory, and its engine."""

    directory: Path
    engine: FakeEngine

    @property
    def path(self) -> Path:
        """The plugin socket."""
        return self.directory / "cni-bridge.sock"

    @contextmanager
    def daemon(self, state: Path) -> Iterator[Watch]:
        """Run the daemon on a state directory."""
        report = self.directory / "stalls"
        arguments = {
            "--socket": self.path,
            "--cni-conf-dir": self.directory / "conf",
            "--cni-bin-dir": self.directory / "bin",
            "--state-dir": state,
            "--run-dir": self.directory / "run",
            "--docker-host": self.engine.host,
            "--log-level": "warning",
        }
        options = [str(part) for pair in arguments.items() for part in pair]
        with (
            (self.directory / "log").open("wb") as log,
            subprocess.Popen(
                [sys.executable, "-m", "tests.bench.watched_daemon", report, "serve", *options], stderr=log
            ) as process,
        ):
            try:
                yield Watch(process.pid, report)
            finally:
                process.kill()

    async def call(self, method: str, body: JsonObject | None = None) -> tuple[float, JsonObject]:
        """Call the daemon; return the seconds that it took, and the answer."""
        began = time.monotonic()
        _, answer = await asyncio.to_thread(request, self.path, "POST", f"/{method}", body, timeout_s=120)
        assert isinstance(answer, dict)
        if "Err" in answer:
            raise RuntimeError(str(answer["Err"]))
        return time.monotonic() - began, answer

    async def wait_listening(self, path: Path) -> None:
        """Wait until the daemon accepts connections at a socket."""
        with socket.socket(socket.AF_UNIX) as probe:
            while probe.connect_ex(str(path)) != 0:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.002)


async def create(host: Host, watch: Watch) -> str:
    """Create and delete endpoints; return the milliseconds of CreateEndpoint: the median, and the mean CPU time."""
    taken: list[float] = []
    cpu_ms = 0.0
    for number in range(CREATES):
        both: dict[str, str] = {"NetworkID": "0" * 64, "EndpointID": id_of(number + (1 << 32))}
        interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
        before = watch.cpu_s()
        duration_s, _ = await host.call("NetworkDriver.CreateEndpoint", {**both, "Interface": interface, "Options": {}})
        cpu_ms += (watch.cpu_s() - before) * 1000
        taken.append(duration_s * 1000)
        await host.call("NetworkDriver.DeleteEndpoint", both)
        await asyncio.sleep(0.3)  # until the teardown that yields to Docker's calls is done
    return f"{median(taken):.0f} ({cpu_ms / CREATES:.0f})"


async def scrape(directory: Path) -> None:
    """Read the metrics."""
    for _ in range(SCRAPES):
        await asyncio.to_thread(request, directory / "run" / "admin.sock", "GET", "/metrics", timeout_s=120)


async def measure(count: int, directory: Path, states: Path) -> tuple[str, ...]:
    """Measure a daemon with `count` endpoints; return the row of the table.

    Args:
        count: How many.
        directory: For what a host has in memory, below `/run`.
        states: For the state directories, on a disk.
    """
    members = {f"{n:064x}": [id_of(e) for e in range(n, count, NETWORKS)] for n in range(NETWORKS)}
    engine = FakeEngine(directory / "engine", networks={key: network(key, *ends) for key, ends in members.items()})
    host = Host(directory=directory, engine=engine)
    (directory / "bin").mkdir()
    (directory / "bin" / "idle").write_text(PLUGIN)
    (directory / "bin" / "idle").chmod(0o755)
    (directory / "conf").mkdir()
    (directory / "conf" / "lan.conflist").write_bytes(render_json(CONFIGURATION))
    for state, boot_id in (("now", BOOT_ID), ("before", "an earlier one")):
        await fill(states / state, directory / "run", engine, count, boot_id)
    await make_sandboxes(count)
    async with engine.running():
        began = time.monotonic()
        with host.daemon(states / "now") as watch:
            await host.wait_listening(host.path)
            listening_s, listening_cpu_s = time.monotonic() - began, watch.cpu_s()
            await host.call("NetworkDriver.EndpointOperInfo", {"NetworkID": "0" * 64, "EndpointID": "0" * 64})
            answer_s, answer_cpu_s = time.monotonic() - began, watch.cpu_s()
            async with watched(watch):
                assert await watch.wait_quiet(QUIET_LIMIT_S), (directory / "log").read_text()
                events = Counter(re.findall(r'"event": "([a-z._]+)"', (directory / "log").read_text()))
                events.pop("endpoint.file_not_edited", None)  # the sandbox of the call above has no process
                assert not events, events  # e.g. endpoint.not_placed: then the sync has not been measured
                print(f"    at rest after {time.monotonic() - began - QUIET_S:.0f} s", file=sys.stderr)
                start = watch.take_stall()
                create_ms = await create(host, watch)
                watch.take_stall()
                await scrape(directory)
                scraping = watch.take_stall()
                rss_mb = watch.rss()
        descriptors = watch.descriptors
        with host.daemon(states / "before") as watch:
            await host.wait_listening(directory / "run" / "admin.sock")  # a killed daemon left its file
            async with watched(watch):
                await asyncio.to_thread(request, directory / "run" / "admin.sock", "GET", "/v1/status", timeout_s=120)
                await watch.wait_quiet(AFTER_REBOOT_S)
                reboot = watch.take_stall()
    return (
        str(count),
        f"{listening_s:.2f} ({listening_cpu_s:.2f})",
        f"{answer_s:.2f} ({answer_cpu_s:.2f})",
        start,
        reboot,
        scraping,
        create_ms,
        str(max(descriptors, watch.descriptors)),
        f"{rss_mb:.0f}",
        f"{watch.rss_mb:.0f}",
    )


HEAD: Final = (
    "endpoints",
    "listening s",
    "first answer s",
    "stall: start ms",
    "stall: reboot ms",
    "stall: scrape ms",
    "create ms",
    "descriptors",
    "RSS MB",
    "RSS: reboot MB",
)


def byte_compile(directory: Path) -> None:
    """Byte-compile what the daemon imports, for all processes that are started from now on."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory)
    subprocess.run([sys.executable, "-c", "import cnm_bridge.daemon, tests.bench.watched_daemon"], check=True)


async def main(counts: tuple[int, ...]) -> None:
    """Measure with byte-compiled code."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as byte_code:
        byte_compile(Path(byte_code))
        await measure_all(counts)


async def measure_all(counts: tuple[int, ...]) -> None:
    """Measure and print one row after the other."""
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    print("  ".join(HEAD), flush=True)
    for count in counts:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True, dir="/run") as directory,
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as states,
        ):
            row = await measure(count, Path(directory), Path(states))
        print("  ".join(cell.rjust(len(title)) for cell, title in zip(row, HEAD, strict=True)), flush=True)
        for path in SANDBOXES.iterdir():
            await Kernel(reply_limit_s=30).remove_staging(path)


if __name__ == "__main__":
    asyncio.run(main(tuple(map(int, sys.argv[1:])) or COUNTS))
