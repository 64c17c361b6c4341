# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab --no-dockerd -- python -m tests.bench.ports`: how publishing many ports delays other calls.

The daemon runs in this process and is called through the plugin socket. The plugin that publishes does nothing, so that
only our own work is timed; with `--portmap` it is the real `portmap` with the nftables backend, which needs CNI plugins
1.9 (`python -m tests.lab --no-dockerd --plugins 1.9 …`). `blocked` is the longest time for which the event loop was
blocked; `computing` is the most CPU time that it used at once, on which other programs have no effect; `another call`
is the longest time of a small call that is repeated meanwhile.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_spec import JsonObject, JsonValue, get_objects
from cnm_bridge.core.settings import Settings
from cnm_bridge.daemon import serve
from cnm_bridge.system.log import log_output
from cnm_bridge.system.sockets import PLUGIN_SOCKET, Listener
from tests.system.scene import PREV_RESULT

__all__ = ["main"]

COUNTS: Final = (100, 1000, 10001)
ENDPOINT: Final = "d0" * 32
NETWORK: Final = "c0" * 32
BOTH: Final[JsonObject] = {"NetworkID": NETWORK, "EndpointID": ENDPOINT}
PUBLISHER: Final = f"""#!/bin/sh
[ "$CNI_COMMAND" = VERSION ] && {{ echo '{{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}}'; exit 0; }}
[ "$CNI_COMMAND" = ADD ] && exec python3 -c "{PREV_RESULT}"
exec cat >/dev/null
"""
LIST: Final[JsonObject] = {
    "cniVersion": "1.0.0",
    "name": "many",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.93.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        },
        {"type": "publisher", "capabilities": {"portMappings": True}},
    ],
}


PORTMAP: Final[JsonObject] = {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": True}}


def list_with(publisher: JsonObject | None) -> JsonObject:
    """Return the network configuration list, with another plugin that publishes."""
    if publisher is None:
        return LIST
    return {**LIST, "plugins": [*get_objects(LIST, "plugins")[:1], publisher]}


async def call(path: Path, method: str, body: bytes) -> None:
    """Call the daemon as dockerd does."""
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    head = f"POST /NetworkDriver.{method} HTTP/1.1\r\nHost: plugin\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.read()
    writer.close()
    reply = json.loads(answer.partition(b"\r\n\r\n")[2])
    if "Err" in reply:
        raise RuntimeError(f"{method}: {reply['Err']}")


@dataclass
class Watch:
    """The longest delay of the event loop, its longest computation, and the longest small call, in seconds."""

    path: Path
    late_s: float = 0.0
    computing_s: float = 0.0
    call_s: float = 0.0

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        """Watch for the length of the block."""
        async with asyncio.TaskGroup() as tasks:
            watching = [tasks.create_task(self._beat()), tasks.create_task(self._call())]
            await asyncio.sleep(0.05)
            yield
            await asyncio.sleep(0.05)
            for task in watching:
                task.cancel()

    async def _beat(self) -> None:
        while True:
            before, before_cpu = time.monotonic(), time.thread_time()
            await asyncio.sleep(0.001)
            self.late_s = max(self.late_s, time.monotonic() - before - 0.001)
            self.computing_s = max(self.computing_s, time.thread_time() - before_cpu)

    async def _call(self) -> None:
        body = json.dumps({**BOTH, "EndpointID": "ee" * 32}).encode()
        while True:
            before = time.monotonic()
            await call(self.path, "EndpointOperInfo", body)
            self.call_s = max(self.call_s, time.monotonic() - before)
            await asyncio.sleep(0.01)


def ports(count: int) -> JsonValue:
    """Return `count` ports, as `-p 10000-…:10000-…` does."""
    return [
        {"Proto": 6, "IP": "", "Port": port, "HostIP": "", "HostPort": port, "HostPortEnd": port}
        for port in range(10000, 10000 + count)
    ]


async def measure(path: Path, run_dir: Path, count: int) -> None:
    """Make and delete the endpoint of a container with `count` ports, and print the times of each call."""
    options: JsonObject = {
        "com.docker.network.portmap": ports(count),
        "com.docker.network.endpoint.exposedports": [{"Proto": 6, "Port": port} for port in range(count)],
    }
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    sandbox = "/var/run/docker/netns/0123456789ab"
    steps: Sequence[tuple[str, JsonObject]] = (
        ("CreateEndpoint", {**BOTH, "Interface": interface, "Options": options}),
        ("Join", {**BOTH, "SandboxKey": sandbox, "Options": options}),
        ("ProgramExternalConnectivity", {**BOTH, "Options": options}),
        ("ProgramExternalConnectivity", {**BOTH, "Options": options}),
        ("RevokeExternalConnectivity", BOTH),
        ("ProgramExternalConnectivity", {**BOTH, "Options": options}),
        ("Leave", BOTH),
        ("DeleteEndpoint", BOTH),
    )
    for name, body in steps:
        encoded = json.dumps(body).encode()
        watch = Watch(path)
        async with watch.on():
            before = time.monotonic()
            await call(path, name, encoded)
            if name == "DeleteEndpoint":
                await asyncio.to_thread(wait_gone, run_dir / "netns" / ENDPOINT)  # the last effect but one
            duration_s = time.monotonic() - before
        numbers = (duration_s, watch.late_s, watch.computing_s, watch.call_s)
        print(f"{count:6}  {name:28}" + "".join(f"{1000 * number:14.0f}" for number in numbers), flush=True)


def wait_gone(path: Path) -> None:
    """Wait until a file no longer exists."""
    while path.exists():
        time.sleep(0.005)


async def main(counts: Sequence[int], publisher: JsonObject | None) -> None:
    """Measure each number of ports, with another plugin that publishes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as name, log_output() as output:
        directory = Path(name)
        for part in ("bin", "conf"):
            (directory / part).mkdir()
        (directory / "bin" / "publisher").write_text(PUBLISHER)
        (directory / "bin" / "publisher").chmod(0o755)
        (directory / "conf" / "many.conflist").write_text(json.dumps(list_with(publisher)))
        settings = Settings(
            socket=directory / "socket",
            cni_conf_dirs=(directory / "conf",),
            cni_bin_dirs=(directory / "bin", Path("/usr/lib/cni")),
            state_dir=directory / "state",
            docker_host=f"unix://{directory}/none",
        )
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(settings.socket))
        sock.listen()
        generic = {"com.docker.network.generic": {"cni.network": "many"}}
        network: JsonObject = {"NetworkID": NETWORK, "Options": generic, "IPv4Data": [], "IPv6Data": []}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                serve(
                    settings,
                    Listener(sock, capacity=PLUGIN_SOCKET),
                    output,
                )
            )
            await call(settings.socket, "CreateNetwork", json.dumps(network).encode())
            print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
            print(f"{'ports':>6}  {'':28}{'took':>14}{'blocked':>14}{'computing':>14}{'another call':>14}   (ms)")
            for count in counts:
                await measure(settings.socket, settings.run_dir, count)
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    if not os.environ.get("CNI_BRIDGE_LAB"):
        sys.exit("benchmarks run in a lab: make bench")
    numbers = [argument for argument in sys.argv[1:] if argument != "--portmap"]
    asyncio.run(main([int(count) for count in numbers] or COUNTS, PORTMAP if "--portmap" in sys.argv else None))
