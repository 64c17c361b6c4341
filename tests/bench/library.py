# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What cni_invoker costs beside `subprocess.run` of the same plugin, and beside libcni.

`python -m tests.bench.library` needs no root. All ways take turns in one run, so that they have the same load; the best
of the rounds counts. One attachment is an ADD and a DEL of `static`, which changes nothing. libcni is measured if
`make libcni` could build it. `BENCH_DIR` is a directory on the disk to measure.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, render_json
from cni_invoker import Attachment, Limits, NetworkConfigurationList, Runtime
from cni_tool import CachedAttachment, CachedRuntime, FileCache
from tests.differential.libcni import Libcni, find_driver

PLUGINS: Final = Path("/usr/lib/cni")
ROUNDS: Final = 25
PAIRS: Final = 3
RECORDS: Final = 1600
PLUGIN: Final[JsonObject] = {"type": "static", "ipam": {"type": "static", "addresses": [{"address": "10.90.0.2/16"}]}}
NETWORK: Final = NetworkConfigurationList.from_document({"cniVersion": "1.0.0", "name": "bench", "plugins": [PLUGIN]})
ATTACHMENT: Final = Attachment(container_id="bench", ifname="eth0", netns="/run/netns/bench")
STDIN: Final = render_json({**PLUGIN, "cniVersion": "1.0.0", "name": "bench"})
FIREWALL: Final = '#!/bin/sh\necho \'{"cniVersion":"1.0.0","ips":[{"address":"10.90.0.2/16"}]}\'\n'

Way = Callable[[], None]
"""Makes `PAIRS` attachments, one after the other."""


def bare() -> None:
    """Execute ADD and DEL as a script would."""
    for _ in range(PAIRS):
        for verb in ("ADD", "DEL"):
            environment = {
                **os.environ,
                "CNI_COMMAND": verb,
                "CNI_CONTAINERID": ATTACHMENT.container_id,
                "CNI_NETNS": ATTACHMENT.netns,
                "CNI_IFNAME": ATTACHMENT.ifname,
                "CNI_PATH": str(PLUGINS),
            }
            subprocess.run([PLUGINS / "static"], env=environment, input=STDIN, capture_output=True, check=True)


def plain_async() -> Way:
    """Without a cache, in one event loop."""
    runtime = Runtime(PLUGINS)

    async def work() -> None:
        for _ in range(PAIRS):
            await runtime.delete(NETWORK, ATTACHMENT, await runtime.add(NETWORK, ATTACHMENT))

    return lambda: asyncio.run(work())


def cached_async(runtime: CachedRuntime) -> Way:
    """With a cache, in one event loop."""

    async def work() -> None:
        for _ in range(PAIRS):
            await runtime.add(NETWORK, ATTACHMENT)
            await runtime.delete(NETWORK, ATTACHMENT)

    return lambda: asyncio.run(work())


@contextmanager
def libcni(directory: Path) -> Iterator[Way | None]:
    """The same with libcni and its cache, which syncs nothing; None if it has not been built."""
    driver = find_driver()
    if driver is None:
        yield None
        return
    lists = directory / "net.d"
    lists.mkdir()
    (lists / "10-bench.conflist").write_bytes(render_json(NETWORK.document))
    request = {
        "confDir": str(lists),
        "cacheDir": str(directory / "libcni"),
        "pluginDirs": [str(PLUGINS)],
        "network": NETWORK.name,
        "containerID": ATTACHMENT.container_id,
        "ifname": ATTACHMENT.ifname,
        "netns": ATTACHMENT.netns,
        "operations": [{"op": "add"}, {"op": "del"}] * PAIRS,
        "real": True,
    }
    with Libcni(driver) as process:

        def run() -> None:
            process.send(request)
            failed = [one["error"] for one in process.receive() if one["error"]]
            assert not failed, failed[0]

        yield run


def measure_ways(directory: Path) -> None:
    """Print the table of ratios."""
    with ExitStack() as opened:
        ways: dict[str, Way | None] = {
            "subprocess.run": bare,
            "libcni, with its cache": opened.enter_context(libcni(directory)),
            "ours, no cache": plain_async(),
            "ours, with its cache": cached_async(CachedRuntime.open(PLUGINS, directory / "a", lock_dir=directory)),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for name, run in ways.items():
                if run is not None:
                    started = time.perf_counter()
                    run()
                    best[name] = min(best[name], (time.perf_counter() - started) / PAIRS * 1000)
    print(f"one attachment: ADD and DEL of static (best of {ROUNDS} rounds of {PAIRS})")
    print(f"{'':24}  {'ms':>6}  {'ratio':>6}")
    for name, found in best.items():
        shown = "not built" if ways[name] is None else f"{found:6.2f}  {found / best['subprocess.run']:6.2f}"
        print(f"{name:24}  {shown}", flush=True)


def measure_sync(directory: Path) -> None:
    """Print what one fsync takes, which the file cache waits for."""
    best = float("inf")
    for _ in range(ROUNDS * PAIRS):
        with (directory / "synced").open("wb") as opened:
            opened.write(b"x" * 1000)
            opened.flush()
            started = time.perf_counter()
            os.fsync(opened.fileno())
            best = min(best, time.perf_counter() - started)
    print(f"one fsync of a new file in {directory}: {best * 1000:.2f} ms at best\n", flush=True)


def measure_imports() -> None:
    """Print the processor time until the first runtime is there, in addition to a bare Python."""
    rows = {
        "bare Python": "pass",
        "Runtime": "from cni_invoker import Runtime; Runtime('/opt/cni/bin')",
        "CachedRuntime.open": "from cni_tool import CachedRuntime; CachedRuntime.open('/x', '/x')",
        "cni_plugin": "import cni_plugin",
    }
    best = dict.fromkeys(rows, float("inf"))
    place = f"import sys; sys.path.insert(0, {os.fspath(Path(__file__).parents[2])!r})\n"
    for _ in range(ROUNDS):
        for name, program in rows.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-IS", "-c", place + program], check=True)  # -S: no editable installations
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[name] = min(best[name], spent * 1000)
    print(f"\nprocessor time of a program that makes its first runtime (best of {ROUNDS})")
    for name, found in best.items():
        print(f"{name:24}  {found:6.1f}  {found - best['bare Python']:+6.1f}  (ms)", flush=True)


def measure_firewall(directory: Path) -> None:
    """Print what the DEL of `firewall` takes beside many records."""
    binaries = directory / "bin"
    binaries.mkdir()
    (binaries / "firewall").write_text(FIREWALL)
    (binaries / "firewall").chmod(0o755)
    network = NetworkConfigurationList.from_document(
        {"cniVersion": "1.0.0", "name": "many", "plugins": [{"type": "firewall"}]}
    )
    result = json.loads(FIREWALL.split("'")[1])
    cache = FileCache(directory / "many")
    runtime = CachedRuntime(Runtime(binaries, Limits()), cache)

    async def work() -> dict[int, float]:
        found = {}
        for count in (1, RECORDS):
            for number in range(len(await cache.list()), count):
                ips = [{"address": f"10.91.{number // 250}.{number % 250}/16"}]
                await cache.put(
                    CachedAttachment(
                        network="many",
                        attachment=Attachment(container_id=f"c{number}", ifname="eth0", netns="/run/netns/x"),
                        configuration=network,
                        result={**result, "ips": ips},
                        boot_id="",
                        added_plugins=1,
                    ),
                    new=True,
                )
            best = float("inf")
            for _ in range(ROUNDS):
                await runtime.add(network, ATTACHMENT)
                started = time.perf_counter()
                await runtime.delete(network, ATTACHMENT)
                best = min(best, time.perf_counter() - started)
            found[count] = best * 1000
        return found

    for count, took in asyncio.run(work()).items():
        print(f"DEL of firewall beside {count:5} records: {took:8.2f} ms", flush=True)


def main() -> None:
    """Measure everything."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as place:
        directory = Path(place)
        measure_sync(directory)
        measure_ways(directory)
        measure_imports()
        print()
        measure_firewall(directory)


if __name__ == "__main__":
    main()
