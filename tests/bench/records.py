# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab --no-dockerd -- python -m tests.bench.records [N]`: what many endpoints cost the daemon.

N records, N sandboxes with a link each, and an engine that knows them all; the plugin does nothing. What is timed: the
start on the state, one round of reconcile where all is well, the question whether GC may run, and a start after a
reboot, when everything is torn down. `blocked` is how long the event loop once did not get on, in which no call of
Docker's is answered.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from cni_invoker import Result
from cnm_bridge.daemon import Daemon, assemble
from cnm_bridge.kernel import Kernel
from cnm_bridge.settings import Settings
from spec import JsonObject
from state import (
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    RequestedInterface,
    Store,
)
from tests.kernel.engine import FakeEngine, network

__all__ = ["main"]

NETWORKS: Final = 10
PLUGIN: Final = """#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
exit 0
"""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Where it happens."""

    directory: Path
    engine: FakeEngine
    settings: Settings


def make_record(number: int, host: Host, boot_id: str) -> EndpointRecord:
    """Make the record of an endpoint that is joined."""
    endpoint_id = f"{number:064x}"
    configuration: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "idle"}]}
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}/8"
    return EndpointRecord(
        id=EndpointId(endpoint_id),
        network_id=NetworkId(f"{number % NETWORKS:064x}"),
        phase=Phase.JOINED,
        boot_id=boot_id,
        internal=False,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            ifname="eth0",
            netns=str(host.settings.run_dir / "netns" / endpoint_id),
            configuration=configuration,
            cni_version="1.0.0",
            args=(),
            capability_args={},
        ),
        answered=1,
        result=Result.from_document(
            {
                "cniVersion": "1.0.0",
                "interfaces": [{"name": "eth0", "sandbox": "/x"}],
                "ips": [{"address": address, "interface": 0}],
            }
        ).document,
        sandbox_key=f"/run/docker/netns/{number}",
    )


async def fill(store: Store, host: Host, count: int, boot_id: str) -> None:
    """Store networks and endpoints."""
    for number in range(NETWORKS):
        record = NetworkRecord(
            id=NetworkId(f"{number:064x}"),
            configuration="lan",
            name="net",
            internal=False,
            options={"cni.network": "lan"},
        )
        await store.put_network(record)
    await store.put_engine_identity(host.engine.identity)
    for number in range(count):
        joined = make_record(number, host, boot_id)
        for phase in (Phase.PENDING, Phase.READY, Phase.JOINED):
            await store.put_endpoint(replace(joined, phase=phase))


async def make_sandboxes(kernel: Kernel, count: int) -> None:
    """Make a namespace with a marked link for each endpoint."""
    for number in range(count):
        path = Path(f"/run/docker/netns/{number}")
        await kernel.create_staging(path)
        marks = f"link property add dev eth0 altname cni-bridge-{number:064x}\n"
        batch = f"link add eth0 type veth peer name eth1\n{marks}"
        await asyncio.to_thread(
            subprocess.run, ["nsenter", f"--net={path}", "ip", "-batch", "-"], input=batch.encode(), check=True
        )


async def measure(what: str, work: Callable[[], Awaitable[object]]) -> None:
    """Print how long something takes, and how long it blocks the event loop at most."""
    worst = 0.0

    async def beat() -> None:
        nonlocal worst
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            worst = max(worst, time.monotonic() - before - 0.005)

    async with asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(beat())
        await asyncio.sleep(0.02)
        begin, begin_cpu = time.monotonic(), time.process_time()
        await work()
        wall_s, cpu_s = time.monotonic() - begin, time.process_time() - begin_cpu
        await asyncio.sleep(0.02)
        beating.cancel()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{what:40} {wall_s:7.2f} s  cpu {cpu_s:6.2f} s  blocked {worst * 1000:6.0f} ms  memory {memory:5.0f} MB",
        flush=True,
    )


async def start(daemon: Daemon) -> int:
    """Do what the daemon does before it answers; return what was undone."""
    unfinished = await daemon.owed.add_unfinished() + await daemon.reconcile.add_dead()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(daemon.owed.run())
        await daemon.owed.wait_tried()
        running.cancel()
    return unfinished


async def main(count: int) -> None:
    """Measure it all."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "bin").mkdir()
        (directory / "bin" / "idle").write_text(PLUGIN)
        (directory / "bin" / "idle").chmod(0o755)
        members = {f"{n:064x}": [f"{e:064x}" for e in range(n, count, NETWORKS)] for n in range(NETWORKS)}
        engine = FakeEngine(directory / "engine", networks={key: network(key, *ends) for key, ends in members.items()})
        settings = Settings(
            state_dir=directory / "state",
            run_dir=directory / "run",
            docker_host=engine.host,
            cni_bin_dirs=(directory / "bin",),
            reconcile_grace_s=0,
        )
        host = Host(directory=directory, engine=engine, settings=settings)
        for boot_id in (BOOT_ID, "an earlier one"):
            store = Store.open(settings.state_dir / boot_id[:2])
            await fill(store, host, count, boot_id)
            store.close()
        await make_sandboxes(Kernel(reply_limit_s=5), count)
        print(f"{count} endpoints, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
        async with engine.running():
            stores: list[Store] = []

            async def open_store(boot_id: str) -> None:
                stores.append(Store.open(settings.state_dir / boot_id[:2]))

            await measure("open the state", lambda: open_store(BOOT_ID))
            daemon = assemble(settings, stores[-1])
            await measure("start, all is well", lambda: start(daemon))
            await measure("one round, all is well", daemon.reconcile.once)
            await measure("may GC run?", daemon.certainty.find_doubt)
            assert len(stores[-1].endpoints()) == count
            stores[-1].close()
            await open_store("an earlier one")
            await measure("start after a reboot, all torn down", lambda: start(assemble(settings, stores[-1])))
            assert not stores[-1].endpoints()
            stores[-1].close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 1000))
