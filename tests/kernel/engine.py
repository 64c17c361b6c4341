# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A fake engine: an HTTP server on a real socket, with the networks and events that a test defines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from cni_bridge_spec import JsonObject, JsonValue
from cnm_bridge.assembly import Daemon


def network(network_id: str, *endpoints: str, driver: str = "cni-bridge", scope: str = "local") -> JsonObject:
    """Return a network as the Docker Engine API shows it."""
    containers: JsonObject = {name: {"Name": "web", "EndpointID": name} for name in endpoints}
    return {
        "Id": network_id,
        "Name": "blue",
        "Driver": driver,
        "Scope": scope,
        "Internal": False,
        "Options": {"cni.network": "lan"},
        "Containers": containers,
    }


@asynccontextmanager
async def closing(daemon: Daemon) -> AsyncIterator[Daemon]:
    """Close the connections of a daemon to its engine at the end of the block."""
    yield daemon
    await daemon.resources.close()


@dataclass
class FakeEngine:
    """An engine's API.

    Attributes:
        path: Its socket.
        identity: Its ID.
        networks: Its networks, by ID.
        sandboxes: The sandboxes of its containers, by the ID of the container, which is that of its endpoint too.
        events: The contents of its event streams, one for each stream; after it the stream ends.
        followed: How many event streams were opened.
        listed: How often its networks were listed, as each comparison does.
    """

    path: Path
    identity: str = "AAAA"
    networks: dict[str, JsonObject] = field(default_factory=dict)
    sandboxes: dict[str, str] = field(default_factory=dict)
    events: list[bytes] = field(default_factory=list)
    followed: int = 0
    listed: int = 0

    @property
    def host(self) -> str:
        """Where it listens, as `--docker-host` takes it."""
        return f"unix://{self.path}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve for the length of the block."""
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_get("/{api}/info", self._info)
        app.router.add_get("/{api}/networks", self._list)
        app.router.add_get("/{api}/networks/{id}", self._show)
        app.router.add_get("/{api}/containers/{id}/json", self._inspect)
        app.router.add_get("/{api}/events", self._events)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.UnixSite(runner, self.path).start()
            yield
        finally:
            await runner.cleanup()

    async def _version(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"ApiVersion": "1.41", "Version": "20.10.24"})

    async def _info(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"ID": self.identity})

    async def _list(self, request: web.Request) -> web.Response:
        self.listed += 1
        found: list[JsonValue] = list(self.networks.values())
        if '"driver"' in request.query.get("filters", ""):
            found = [one for one in self.networks.values() if f'"{one["Driver"]}"' in request.query["filters"]]
        return web.json_response(found)

    async def _show(self, request: web.Request) -> web.Response:
        shown = self.networks.get(request.match_info["id"])
        return web.json_response(shown or {"message": "no such network"}, status=200 if shown else 404)

    async def _inspect(self, request: web.Request) -> web.Response:
        found = request.match_info["id"]
        if found not in self.sandboxes:
            return web.json_response({"message": "no such container"}, status=404)
        settings = {"SandboxKey": self.sandboxes[found], "Networks": {"blue": {"EndpointID": found}}}
        return web.json_response({"NetworkSettings": settings})

    async def _events(self, request: web.Request) -> web.Response:  # noqa: ARG002
        self.followed += 1
        return web.Response(body=self.events.pop(0) if self.events else b"", content_type="application/json")
