# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What one execution of a plugin costs in addition to the plugin, and how many executions there are per second.

The plugin is `static`, which changes nothing, so that only the execution is measured. *Bare* is the minimum that starts
the same program with the same input and environment and reads its output: `posix_spawn`, three pipes, `wait`.
"""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cni_bridge_spec import render_json
from cni_invoker import Attachment, Limits, NetworkConfigurationList, Runtime
from tests.bench.statistics import Series, render_table

__all__ = ["measure_executions"]

PLUGINS: Final = Path("/usr/lib/cni")
NETWORK: Final = NetworkConfigurationList.from_document(
    {
        "cniVersion": "1.0.0",
        "name": "bench",
        "plugins": [
            {
                "type": "static",
                "ipam": {"type": "static", "addresses": [{"address": "10.90.0.2/16", "gateway": "10.90.0.1"}]},
            }
        ],
    }
)
ATTACHMENT: Final = Attachment(container_id="bench", ifname="eth0", netns="/run/netns/bench")
STDIN: Final = render_json({**NETWORK.plugins[0].document, "cniVersion": "1.0.0", "name": "bench"})
ENVIRONMENT: Final = {
    **os.environ,
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": ATTACHMENT.container_id,
    "CNI_NETNS": ATTACHMENT.netns,
    "CNI_IFNAME": ATTACHMENT.ifname,
    "CNI_ARGS": "",
    "CNI_PATH": str(PLUGINS),
}
AT_ONCE: Final = (1, 4, 16)


def bare() -> bytes:
    """Execute the plugin's ADD; return what it printed."""
    (its_stdin, stdin), (stdout, its_stdout), (stderr, its_stderr) = os.pipe(), os.pipe(), os.pipe()
    theirs = {0: its_stdin, 1: its_stdout, 2: its_stderr}
    program = str(PLUGINS / "static")
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in theirs.items()]
    pid = os.posix_spawn(program, [program], ENVIRONMENT, file_actions=actions, setsid=False)
    for fd in theirs.values():
        os.close(fd)
    os.write(stdin, STDIN)
    os.close(stdin)
    printed = bytearray()
    while data := os.read(stdout, 1 << 16):
        printed += data
    os.close(stdout)
    os.close(stderr)
    _, status = os.waitpid(pid, 0)
    assert status == 0, printed.decode()
    return bytes(printed)


def measure_executions(rounds: int) -> None:
    """Measure and print both tables."""
    asyncio.run(_measure_one(rounds))
    print(f"executions per second ({rounds * 4} executions, {os.cpu_count()} CPUs)")
    print(f"{'at once':>8}  {'bare':>8}  {'ours':>8}")
    for at_once in AT_ONCE:
        bare_per_s, ours_per_s = _bare_throughput(rounds * 4, at_once), asyncio.run(_throughput(rounds * 4, at_once))
        print(f"{at_once:8}  {bare_per_s:8.0f}  {ours_per_s:8.0f}", flush=True)
    print()


async def _measure_one(rounds: int) -> None:
    """Execute one at a time, bare and ours in turn, so that both run on the same machine load."""
    runtime = Runtime([PLUGINS], Limits())
    series = {key: Series() for key in ("bare plugin", "ours: ADD", "ours: DEL")}
    result = await runtime.add(NETWORK, ATTACHMENT)
    cpu_s = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        bare()
        series["bare plugin"].add((time.perf_counter() - started) * 1000)
        cpu_started = time.process_time()
        started = time.perf_counter()
        await runtime.add(NETWORK, ATTACHMENT)
        series["ours: ADD"].add((time.perf_counter() - started) * 1000)
        cpu_s += time.process_time() - cpu_started
        started = time.perf_counter()
        await runtime.delete(NETWORK, ATTACHMENT, result)
        series["ours: DEL"].add((time.perf_counter() - started) * 1000)
    rows = {**series, "in addition to the bare plugin": series["ours: ADD"].minus(series["bare plugin"])}
    print(render_table(f"one execution of static ({rounds} rounds)", rows, digits=2))
    print(f"CPU time of ours for one ADD: {cpu_s / rounds * 1000:.2f} ms\n", flush=True)


def _bare_throughput(count: int, at_once: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(max_workers=at_once) as threads:
        for executed in [threads.submit(bare) for _ in range(count)]:
            executed.result()
    return count / (time.perf_counter() - started)


async def _throughput(count: int, at_once: int) -> float:
    runtime = Runtime([PLUGINS], Limits(executions=at_once))
    started = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            attachment = Attachment(container_id=f"bench{number}", ifname="eth0", netns=ATTACHMENT.netns)
            tasks.create_task(runtime.add(NETWORK, attachment))
    return count / (time.perf_counter() - started)
