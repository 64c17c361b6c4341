# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's sockets as in production, in the test's own process, and a client that sends raw bytes.

Store and runtime are real. No network has a usable configuration, so that nothing reaches the kernel.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.settings import Settings
from cnm_bridge.server.admin.http import answering_admin
from cnm_bridge.server.admin.metrics import answering_scrapes
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.sockets import open_sockets

_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The sockets of a daemon.

    Attributes:
        socket: The path of the plugin socket.
        admin: The path of the admin socket.
        port: The port for metrics, 0 if there is none.
        store: The records behind it.
        journal: The daemon's last events.
    """

    socket: Path
    admin: Path
    port: int
    store: Store
    journal: Journal

    async def send(self, data: bytes, *, end: bool = False) -> bytes:
        """Send bytes on a new connection, close its sending side if `end`, and return everything that is received."""
        async with asyncio.timeout(_LIMIT_S):
            reader, writer = await asyncio.open_unix_connection(self.socket)
            try:
                writer.write(data)
                if end:
                    writer.write_eof()
                return await reader.read()
            except ConnectionError:  # it was closed while we were still sending
                return b""
            finally:
                writer.transport.abort()

    async def post(self, method: str, body: bytes, *headers: str) -> tuple[int, JsonObject]:
        """Call a method as dockerd does; return status and answer."""
        lines = [f"POST /{method} HTTP/1.1", "Host: plugin", f"Content-Length: {len(body)}", *headers, "", ""]
        answer = await self.send("\r\n".join(lines).encode("utf-8", "surrogateescape") + body)
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(rest)

    async def is_answering(self) -> bool:
        """Return whether a valid call is answered."""
        return await self.post("Plugin.Activate", b"") == (200, {"Implements": ["NetworkDriver", "IpamDriver"]})

    def records(self) -> tuple[object, ...]:
        """Return everything that is stored."""
        ipam = self.store.ipam
        return (*self.store.networks(), *self.store.endpoints(), *ipam.pools.all(), *ipam.addresses())


@asynccontextmanager
async def serving(directory: Path, changes: Settings | None = None) -> AsyncIterator[Served]:
    """Serve as the daemon does, with state, configurations and plugins below `directory`."""
    settings = replace(
        changes or Settings(),
        socket=directory / "s",
        admin_socket=directory / "a",
        state_dir=directory / "state",
        run_dir=directory / "run",
        cni_conf_dirs=(directory / "net.d",),
        cni_bin_dirs=(directory / "bin",),
        docker_host=f"unix://{directory}/no-docker.sock",
        drain_timeout_s=5.0,
    )
    store = Store.open(settings.state_dir)
    try:
        daemon = assemble(settings, store)
        with open_sockets(settings) as sockets:
            async with (
                answering_admin(sockets.admin, daemon.requests),
                answering_scrapes(sockets.scrapes, daemon.metrics.give),
                daemon.answering(sockets.plugin),
            ):
                yield Served(
                    socket=settings.socket,
                    admin=settings.admin_path,
                    port=sockets.scrapes.getsockname()[1] if sockets.scrapes else 0,
                    store=store,
                    journal=daemon.resources.journal,
                )
    finally:
        store.close()
