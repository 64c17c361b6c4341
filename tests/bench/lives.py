# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab --no-dockerd -- python -m tests.bench.lives [N]`: the daemon's memory over N endpoint lives.

A life is CreateEndpoint, Join, Leave and DeleteEndpoint by raw calls, and the teardown that follows; a few run at once.
The sandbox is never made, as before Engine 28; the list makes a route that needs a sync, so that each join is watched.
After each twentieth of the lives a line is printed: resident memory, its anonymous part, threads, descriptors.

Python's table of interned strings is replaced by a larger one now and then: pathlib interns the parts of each path,
also those that contain an endpoint's ID. Without the limit that `cnm_bridge.system.process` sets, glibc kept up
to two megabytes more after that.
"""

import asyncio
import http.client
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, as_object, render_json
from tests.lab.unix_http import request

__all__ = ["main"]

AT_ONCE: Final = 6
LINES: Final = 20
PLUGIN: Final = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' ;;
ADD)
    nsenter --net="$CNI_NETNS" ip -batch - <<EOF
link add eth0 type veth peer name bench$$ netns $$
addr add 10.$(($$ >> 16)).$(($$ >> 8 & 255)).$(($$ & 255))/8 dev eth0
link set eth0 up
route add 192.0.2.0/24 dev eth0 metric 7 mtu 1400
EOF
    echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}]}' ;;
esac
"""
NETWORK: Final = "a" * 64


class Daemon:
    """A running daemon, called as by dockerd."""

    def __init__(self, directory: Path, process: "subprocess.Popen[bytes]") -> None:
        self._socket = directory / "cni-bridge.sock"
        self._admin = directory / "run" / "admin.sock"
        self._process = process

    async def call(self, method: str, body: JsonObject | None = None) -> JsonObject:
        """Call the daemon."""
        _, answer = await asyncio.to_thread(request, self._socket, "POST", f"/{method}", body, timeout_s=120)
        assert isinstance(answer, dict)
        if "Err" in answer:
            raise RuntimeError(str(answer["Err"]))
        return answer

    async def wait_ready(self) -> None:
        """Wait until the daemon answers."""
        while True:
            try:
                await self.call("Plugin.Activate")
            except (OSError, http.client.HTTPException):
                await asyncio.sleep(0.05)
            else:
                return

    async def live(self, number: int) -> None:
        """Make and delete an endpoint."""
        both: dict[str, str] = {"NetworkID": NETWORK, "EndpointID": f"{number:011x}{0:053x}"}
        interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
        await self.call("NetworkDriver.CreateEndpoint", {**both, "Interface": interface, "Options": {}})
        sandbox = f"/var/run/docker/netns/{number:012x}"
        await self.call("NetworkDriver.Join", {**both, "SandboxKey": sandbox, "Options": {}})
        await self.call("NetworkDriver.Leave", both)
        await self.call("NetworkDriver.DeleteEndpoint", both)

    async def wait_torn_down(self) -> None:
        """Wait until no endpoint is left."""
        while (await self._status())["endpoints"]:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.2)

    async def _status(self) -> JsonObject:
        _, answer = await asyncio.to_thread(request, self._admin, "GET", "/v1/status", timeout_s=120)
        return as_object(answer, "status")

    def memory(self) -> str:
        """Return resident memory, its anonymous part, threads and descriptors, as columns."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        rss, anonymous, threads = (
            int(re.findall(rf"{key}:\s+(\d+)", text)[0]) for key in ("VmRSS", "RssAnon", "Threads")
        )
        descriptors = len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))
        return f"{rss / 1024:9.1f}  {anonymous / 1024:9.1f}  {threads:7}  {descriptors:11}"


async def main(count: int) -> None:
    """Start a daemon and measure it over `count` lives."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        directory = Path(name)
        for part in ("bin", "conf"):
            (directory / part).mkdir()
        (directory / "bin" / "idle").write_text(PLUGIN)
        (directory / "bin" / "idle").chmod(0o755)
        document: JsonObject = {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "idle"}]}
        (directory / "conf" / "lan.conflist").write_bytes(render_json(document))
        paths = {"socket": "cni-bridge.sock", "state-dir": "state", "run-dir": "run"}
        paths |= {"cni-conf-dir": "conf", "cni-bin-dir": "bin"}
        options = [f"--{option}={directory / name}" for option, name in paths.items()]
        options += ["--docker-host=unix:///nowhere", "--log-level=warning"]
        program = os.environ.get("BENCH_DAEMON", "cnm_bridge").split()
        with subprocess.Popen([sys.executable, "-m", *program, "serve", *options]) as process:  # noqa: ASYNC220
            try:
                await measure(Daemon(directory, process), count)
            finally:
                process.terminate()


async def measure(daemon: Daemon, count: int) -> None:
    """Run the lives, and print a line after each twentieth of them."""
    await daemon.wait_ready()
    generic = {"com.docker.network.generic": {"cni.network": "lan"}}
    body: JsonObject = {"NetworkID": NETWORK, "Options": generic, "IPv4Data": [], "IPv6Data": []}
    await daemon.call("NetworkDriver.CreateNetwork", body)
    print("   lives     RSS MB    anon MB  threads  descriptors", flush=True)
    print(f"{0:8}  {daemon.memory()}", flush=True)
    portion = max(1, count // LINES)
    for begin in range(0, count, portion):
        numbers = iter(range(begin, min(count, begin + portion)))

        async def live(numbers: Iterator[int] = numbers) -> None:
            for number in numbers:
                await daemon.live(number)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(live())
        await daemon.wait_torn_down()
        print(f"{min(count, begin + portion):8}  {daemon.memory()}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 20000))
