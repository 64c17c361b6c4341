# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab --no-dockerd -- python -m tests.bench.records [N …]`: what many endpoints cost the daemon.

A daemon is started on N records, with sandboxes, a link of each endpoint in them, and an engine that knows them all;
each endpoint has something to be settled. The plugins do nothing but make a link. The columns:

* *listening*, *first answer*: from the start of the process until Docker can connect, and until a call that needs the
  records is answered; in brackets what all its threads worked until then, which a busy machine changes less. The code
  is byte-compiled before, as it is where it is installed;
* *stall*: the longest time that the event loop did not get on while the daemon started, settled all endpoints and
  went one round of reconcile; then in the first minute of tearing everything down after a reboot. First as the clock
  has it, in brackets what the loop's own thread worked meanwhile: on a busy machine only that is ours;
* *create*: the median of 20 CreateEndpoint calls, in brackets what the daemon's threads worked for each of them;
* *descriptors*: the most that were open at once, without sockets;
* *RSS*: after all that, and the most while everything was torn down.
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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from cnm_bridge.kernel import Kernel
from spec import JsonObject, render_json
from state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    RequestedInterface,
    Store,
)
from state.codec import render_endpoint, render_network
from tests.kernel.engine import FakeEngine, network
from tests.lab.unix_http import request

__all__ = ["main"]

COUNTS: Final = (1, 10, 100, 1000, 10000)
NETWORKS: Final = 10
IN_SANDBOX: Final = 10
"""How many endpoints share a sandbox where there are more than a thousand: so many namespaces take minutes to make."""
CREATES: Final = 20
PLUGIN: Final = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD)
    nsenter --net="$CNI_NETNS" ip link add eth0 type veth peer name "bench$$" netns $$
    echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}]}' ;;
esac
"""
CONFIGURATION: Final[JsonObject] = {
    "cniVersion": "1.0.0",
    "name": "lan",
    "plugins": [
        {
            "type": "idle",
            "ipam": {"type": "none", "ranges": [[{"subnet": "10.0.0.0/8", "gateway": "10.0.0.1"}]]},
            "args": {"about": "as long as a list with four plugins is. " * 15},
        }
    ],
}
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
SANDBOXES: Final = Path("/run/docker/netns")
QUIET_S: Final = 1.5
PATIENCE_S: Final = 300.0
AFTER_REBOOT_S: Final = 60.0
"""For so long the daemon is watched while it tears down what an earlier boot has left: thousands take minutes."""


def id_of(number: int) -> str:
    """Give the ID of an endpoint; its link in the host namespace is called by the first eleven digits."""
    return f"{number:011x}{0:053x}"


def ipv4_of(number: int) -> str:
    """Give the address of an endpoint."""
    return f"10.{number + 2 >> 16}.{number + 2 >> 8 & 255}.{number + 2 & 255}"


def ipv6_of(number: int) -> str:
    """Give its other one."""
    return f"fd00::{number + 2:x}"


def make_record(number: int, run_dir: Path, boot_id: str, sandbox: Path) -> EndpointRecord:
    """Make the record of an endpoint that is joined, as plugins of both families leave it."""
    endpoint_id = id_of(number)
    address, address_ipv6 = ipv4_of(number), ipv6_of(number)
    mac = "02:" + ":".join(f"{number:010x}"[i : i + 2] for i in range(0, 10, 2))
    staging = str(run_dir / "netns" / endpoint_id)
    of_address: JsonObject = {"peer": None, "broadcast": None, "scope": 0, "flags": 128, "metric": None, "label": None}
    of_route: JsonObject = {
        "gateway": None,
        "table": 254,
        "type": 1,
        "scope": 253,
        "protocol": 2,
        "source": None,
        "onlink": False,
        "mtu": None,
        "advmss": None,
    }
    return EndpointRecord(
        id=EndpointId(endpoint_id),
        network_id=NetworkId(f"{number % NETWORKS:064x}"),
        phase=Phase.JOINED,
        boot_id=boot_id,
        internal=False,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            id=AttachmentId(endpoint_id),
            ifname="eth0",
            netns=staging,
            configuration=CONFIGURATION,
            cni_version="1.0.0",
            args=(("IgnoreUnknown", "1"),),
            capability_args={},
        ),
        added_plugins=1,
        result={
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "lan0"},
                {"name": "veth", "mac": mac},
                {"name": "eth0", "mac": mac, "sandbox": "/x"},
            ],
            "ips": [{"address": f"{address}/8", "interface": 2}, {"address": f"{address_ipv6}/64", "interface": 2}],
            "dns": {},
        },
        snapshot={
            "link": {"name": "eth0", "kind": "veth", "mac": mac, "mtu": 1500, "noarp": False},
            "addresses": [{**of_address, "address": f"{address}/8"}, {**of_address, "address": f"{address_ipv6}/64"}],
            "routes": [
                {**of_route, "destination": "10.0.0.0/8", "metric": 0, "source": address},
                {**of_route, "destination": "fd00::/64", "metric": 256, "scope": 0},
                {**of_route, "destination": "fe80::/64", "metric": 256, "scope": 0},
            ],
            "rules": [],
            "neighbours": [],
            "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "1"}],
            "qdisc": None,
        },
        addresses=(address, address_ipv6),
        sandbox_key=str(sandbox),
    )


def sandbox_of(number: int, count: int) -> Path:
    """Say where an endpoint's link is."""
    return SANDBOXES / str(number // IN_SANDBOX if count > 1000 else number)


async def fill(directory: Path, run_dir: Path, engine: FakeEngine, count: int, boot_id: str) -> None:
    """Store networks and endpoints."""
    store = Store.open(directory)
    await store.put_engine_identity(engine.identity)
    entries: dict[str, bytes] = {}
    for number in range(NETWORKS):
        record = NetworkRecord(
            id=NetworkId(f"{number:064x}"),
            configuration="lan",
            name="net",
            internal=False,
            options={"cni.network": "lan"},
        )
        entries[f"network/{record.id}"] = render_network(record)
    for number in range(count):
        joined = make_record(number, run_dir, boot_id, sandbox_of(number, count))
        entries[f"endpoint/{joined.id}"] = render_endpoint(joined)
    store._db.write_now(entries)  # ten thousand synced writes would take a minute
    store.close()


async def make_sandboxes(count: int) -> None:
    """Make a namespace with a marked link for each endpoint."""
    kernel = Kernel(reply_limit_s=30)
    batches: dict[Path, list[str]] = {}
    for number in range(count):
        lines = batches.setdefault(sandbox_of(number, count), [])
        place = len(lines) // 5
        lines += [
            f"link add eth{place} type veth peer name peer{place}",
            f"link property add dev eth{place} altname cni-bridge-{id_of(number)}",
            f"addr add {ipv4_of(number)}/8 dev eth{place}",
            f"addr add {ipv6_of(number)}/64 dev eth{place} nodad",
            f"link set eth{place} up",
        ]
    for path, lines in batches.items():
        await kernel.create_staging(path)
        batch = "\n".join([*lines, ""]).encode()
        await asyncio.to_thread(
            subprocess.run, ["nsenter", f"--net={path}", "ip", "-batch", "-"], input=batch, check=True
        )


@dataclass(slots=True)
class Watch:
    """What is seen of a daemon's process.

    Attributes:
        pid: The process.
        report: What `watched_daemon` tells.
        descriptors: The most that were open at once, without sockets.
        rss_mb: The most memory.
    """

    pid: int
    report: Path
    descriptors: int = 0
    rss_mb: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    async def run(self) -> None:
        """Look now and then."""
        while True:
            kinds = list(_descriptors(self.pid))
            self.descriptors = max(self.descriptors, sum(not kind.startswith("socket:") for kind in kinds))
            self.rss_mb = max(self.rss_mb, self.rss())
            await asyncio.sleep(0.01)

    def rss(self) -> float:
        """Give the memory now, in MB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20

    def stall(self) -> str:
        """Give the longest stall so far, and forget it."""
        lines = [line.split() for line in self.report.read_text().splitlines()] if self.report.exists() else []
        self.report.write_text("")
        wall, cpu = (max((float(line[column]) for line in lines), default=0.0) for column in (1, 2))
        return f"{wall * 1000:.0f} ({cpu * 1000:.0f})"

    async def quiet(self, limit_s: float) -> bool:
        """Wait until the daemon does next to nothing; tell whether it does after so many seconds."""
        since, before = time.monotonic(), self.cpu_s()
        deadline = since + limit_s
        while time.monotonic() < deadline:
            await asyncio.sleep(0.25)
            now = self.cpu_s()
            if now - before > 0.1 * QUIET_S:
                since, before = time.monotonic(), now
            elif time.monotonic() - since > QUIET_S:
                return True
        return False

    def cpu_s(self) -> float:
        """Give the time that its threads have worked, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _descriptors(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield str(entry.readlink())


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where it happens."""

    directory: Path
    engine: FakeEngine

    @property
    def path(self) -> Path:
        """The plugin socket."""
        return self.directory / "cni-bridge.sock"

    @contextmanager
    def daemon(self, state: Path) -> Iterator[Watch]:
        """Run the daemon on a state."""
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
        """Call the daemon; give the seconds that it took, and the answer."""
        began = time.monotonic()
        _, answer = await asyncio.to_thread(request, self.path, "POST", f"/{method}", body, timeout_s=120)
        assert isinstance(answer, dict)
        if "Err" in answer:
            raise RuntimeError(str(answer["Err"]))
        return time.monotonic() - began, answer

    async def listening(self) -> None:
        """Wait until the daemon can be connected to."""
        with socket.socket(socket.AF_UNIX) as probe:
            while probe.connect_ex(str(self.path)) != 0:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.002)


@asynccontextmanager
async def watched(watch: Watch) -> AsyncIterator[None]:
    """Watch a daemon for the length of the block."""
    watching = asyncio.create_task(watch.run())  # noqa: TID251
    try:
        yield
    finally:
        watching.cancel()


async def create(host: Host, watch: Watch) -> str:
    """Create endpoints and delete them again; give how many milliseconds the creating took: median, and CPU in all."""
    taken: list[float] = []
    worked_ms = 0.0
    for number in range(CREATES):
        both: dict[str, str] = {"NetworkID": "0" * 64, "EndpointID": id_of(number + (1 << 32))}
        interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
        before = watch.cpu_s()
        duration_s, _ = await host.call("NetworkDriver.CreateEndpoint", {**both, "Interface": interface, "Options": {}})
        worked_ms += (watch.cpu_s() - before) * 1000
        taken.append(duration_s * 1000)
        await host.call("NetworkDriver.DeleteEndpoint", both)
        await asyncio.sleep(0.3)  # what is put off until Docker is quiet is done then
    return f"{median(taken):.0f} ({worked_ms / CREATES:.0f})"


async def measure(count: int, directory: Path) -> tuple[str, ...]:
    """Measure a daemon with so many endpoints; give the row of the table."""
    members = {f"{n:064x}": [id_of(e) for e in range(n, count, NETWORKS)] for n in range(NETWORKS)}
    engine = FakeEngine(directory / "engine", networks={key: network(key, *ends) for key, ends in members.items()})
    host = Host(directory=directory, engine=engine)
    (directory / "bin").mkdir()
    (directory / "bin" / "idle").write_text(PLUGIN)
    (directory / "bin" / "idle").chmod(0o755)
    (directory / "conf").mkdir()
    (directory / "conf" / "lan.conflist").write_bytes(render_json(CONFIGURATION))
    for state, boot_id in (("now", BOOT_ID), ("before", "an earlier one")):
        await fill(directory / state, directory / "run", engine, count, boot_id)
    await make_sandboxes(count)
    async with engine.running():
        began = time.monotonic()
        with host.daemon(directory / "now") as watch:
            await host.listening()
            listening_s, listening_cpu_s = time.monotonic() - began, watch.cpu_s()
            await host.call("NetworkDriver.EndpointOperInfo", {"NetworkID": "0" * 64, "EndpointID": "0" * 64})
            answer_s, answer_cpu_s = time.monotonic() - began, watch.cpu_s()
            async with watched(watch):
                assert await watch.quiet(PATIENCE_S), (directory / "log").read_text()
                told = Counter(re.findall(r'"event": "([a-z._]+)"', (directory / "log").read_text()))
                assert not told, told  # such as endpoint.not_placed: then the settling has not been measured
                print(f"    at rest after {time.monotonic() - began - QUIET_S:.0f} s", file=sys.stderr)
                start = watch.stall()
                create_ms = await create(host, watch)
                rss_mb = watch.rss()
        descriptors = watch.descriptors
        with host.daemon(directory / "before") as watch:
            await host.listening()
            async with watched(watch):
                await host.call("CniBridge.Status")
                await watch.quiet(AFTER_REBOOT_S)
                reboot = watch.stall()
    return (
        str(count),
        f"{listening_s:.2f} ({listening_cpu_s:.2f})",
        f"{answer_s:.2f} ({answer_cpu_s:.2f})",
        start,
        reboot,
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
    "create ms",
    "descriptors",
    "RSS MB",
    "RSS: reboot MB",
)


def byte_compile(directory: Path) -> None:
    """Have all processes started from now on find byte code of what the daemon imports, even if none may be written."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory)
    subprocess.run([sys.executable, "-c", "import cnm_bridge.daemon, tests.bench.watched_daemon"], check=True)


async def main(counts: tuple[int, ...]) -> None:
    """Measure it all."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as byte_code:
        byte_compile(Path(byte_code))
        await measure_all(counts)


async def measure_all(counts: tuple[int, ...]) -> None:
    """Measure one row after the other, and print it."""
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    print("  ".join(HEAD), flush=True)
    for count in counts:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            row = await measure(count, Path(name))
        print("  ".join(cell.rjust(len(title)) for cell, title in zip(row, HEAD, strict=True)), flush=True)
        for path in SANDBOXES.iterdir():
            await Kernel(reply_limit_s=30).remove_staging(path)


if __name__ == "__main__":
    asyncio.run(main(tuple(map(int, sys.argv[1:])) or COUNTS))
