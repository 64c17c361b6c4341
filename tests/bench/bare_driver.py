# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A network driver that does only what cannot be left out: what Docker, aiohttp, the plugins and the kernel need.

`python -m tests.bench.bare_driver SOCKET move|sandbox`. It shows how much of the time of `docker run` is ours: no
records, no snapshot, no log, no checks, no sync of the sandbox. It answers from the plugins' results, and forgets
everything when it ends. The plugins run by `cni_invoker`, each with the same input as those of the daemon: with *move*
in a namespace of its own, from which the link is moved; with *sandbox* first the IPAM plugin, then all others at Join,
as in mode *fast*.
"""

import asyncio
import signal
import socket
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from cni_bridge_spec import JsonObject, get_int, get_list, get_object, get_str
from cni_invoker import Attachment, ConfigurationDirectories, NetworkConfigurationList, Result, Runtime
from cnm_bridge.core.lists.changes import with_reservation
from cnm_bridge.core.planning.mac import endpoint_mac
from cnm_bridge.core.planning.ports import idle_without_ports, publishing_plugins
from cnm_bridge.system.kernel.host import Host
from cnm_bridge.system.kernel.netlink.links import get_link, move_link, rename_link
from cnm_bridge.system.kernel.netns import ensure_namespace, open_namespace, pin_namespace, remove_namespace
from cnm_bridge.system.kernel.staged_link import StagedLink

__all__ = ["main"]

PATH: Final = "/run/bare-driver"
IFNAME: Final = "eth0"
QUIET_S: Final = 2.0
"""How long a teardown waits, so that it does not compete with the containers that are measured; so do ours, at most."""
_PROTOCOLS: Final = {6: "tcp", 17: "udp"}


@dataclass(slots=True)
class Bound:
    """An endpoint."""

    network: NetworkConfigurationList
    attachment: Attachment
    host_name: str
    results: list[tuple[NetworkConfigurationList, Result]] = field(default_factory=list)

    @property
    def result(self) -> Result:
        """The last result."""
        return self.results[-1][1]


class BareDriver:
    """Answers the calls of the plugin protocol."""

    def __init__(self, *, in_sandbox: bool) -> None:
        self.in_sandbox = in_sandbox
        self.host = Host(reply_limit_s=5)
        self.runtime = Runtime(["/opt/cni/bin", "/usr/lib/cni"])
        self.networks: dict[str, NetworkConfigurationList] = {}
        self.endpoints: dict[str, Bound] = {}
        self.teardowns: set[asyncio.Task[None]] = set()

    async def activate(self, _: JsonObject) -> JsonObject:
        return {"Implements": ["NetworkDriver"]}

    async def capabilities(self, _: JsonObject) -> JsonObject:
        return {"Scope": "local", "GwAllocChecker": False}

    async def nothing(self, _: JsonObject) -> JsonObject:
        return {}

    async def create_network(self, call: JsonObject) -> JsonObject:
        options = get_object(get_object(call, "Options"), "com.docker.network.generic")
        network = ConfigurationDirectories("/etc/cni/net.d").index().find(get_str(options, "cni.network"))
        self.networks[get_str(call, "NetworkID")] = await self.runtime.negotiate(network)
        return {}

    async def create_endpoint(self, call: JsonObject) -> JsonObject:
        endpoint_id, network = get_str(call, "EndpointID"), self.networks[get_str(call, "NetworkID")]
        netns = Path(PATH) / endpoint_id
        attachment = Attachment(container_id=endpoint_id, ifname=IFNAME, netns=str(netns))
        bound = self.endpoints[endpoint_id] = Bound(network, attachment, f"bare{endpoint_id[:11]}")
        if self.in_sandbox:
            whole = with_reservation(network, None)
            await self._add(bound, whole.with_plugins(whole.plugins[:1]))
            address = bound.result.ips[0].address
            return {"Interface": {"Address": str(address), "MacAddress": endpoint_mac(endpoint_id)}}
        await self.host.run(partial(ensure_namespace, netns, host=self.host.id))
        await self._add(bound, network)
        await self.host.run(partial(self._take_out, bound))
        (link,) = (link for link in bound.result.interfaces if link.sandbox)
        return {"Interface": {"Address": str(bound.result.ips[0].address), "MacAddress": link.mac}}

    async def join(self, call: JsonObject) -> JsonObject:
        bound = self.endpoints[get_str(call, "EndpointID")]
        gateway: JsonObject = {"Gateway": str(bound.result.ips[0].gateway), "DisableGatewayService": True}
        if not self.in_sandbox:
            return {**gateway, "InterfaceName": {"SrcName": bound.host_name, "DstPrefix": "eth"}}
        await self.host.run(partial(_pin, get_str(call, "SandboxKey"), Path(bound.attachment.netns)))
        document = {key: value for key, value in bound.result.document.items() if key != "routes"}  # Docker adds them
        whole = with_reservation(bound.network, Result.from_document(document))
        mac = endpoint_mac(bound.attachment.container_id)
        bound.attachment = replace(bound.attachment, capability_args={"mac": mac})
        await self._add(bound, whole.with_plugins(whole.plugins[1:]))
        return gateway

    async def program_external_connectivity(self, call: JsonObject) -> JsonObject:
        bound = self.endpoints[get_str(call, "EndpointID")]
        network = bound.results[-1][0]
        publishers = publishing_plugins(network)
        ports = get_list(get_object(call, "Options"), "com.docker.network.portmap")
        if publishers and ports:
            mappings = [_mapping(port) for port in ports if isinstance(port, dict)]
            bound.attachment = replace(
                bound.attachment, capability_args={**bound.attachment.capability_args, "portMappings": mappings}
            )
            await self.runtime.add(network.with_plugins(publishers), bound.attachment, prev_result=bound.result)
        return {}

    async def delete_endpoint(self, call: JsonObject) -> JsonObject:
        bound = self.endpoints.pop(get_str(call, "EndpointID"))
        self.teardowns.add(asyncio.create_task(self._tear_down(bound)))  # noqa: TID251  # kept in the set
        return {}

    async def _add(self, bound: Bound, network: NetworkConfigurationList) -> None:
        skipped = idle_without_ports(network)
        bound.results.append((network, await self.runtime.add(network, bound.attachment, skipped=skipped)))

    def _take_out(self, bound: Bound) -> None:
        """Rename the link and move it to the host namespace; the calling thread stays in the other one."""
        with (
            open_namespace(Path("/proc/thread-self/ns/net")) as host,
            self.host.inside(Path(bound.attachment.netns)) as inside,
        ):
            link = get_link(inside, IFNAME)
            rename_link(inside, link, bound.host_name)
            move_link(inside, link, host)

    async def _tear_down(self, bound: Bound) -> None:
        await asyncio.sleep(QUIET_S)
        netns = Path(bound.attachment.netns)
        if not self.in_sandbox:
            link = StagedLink(
                host=self.host, path=netns, ifname=IFNAME, host_name=bound.host_name, altname=f"bare-{netns.name}"
            )
            await link.bring_back(sandbox=None, addresses=(bound.result.ips[0].address,), is_device=False)
        for network, result in reversed(bound.results):
            await self.runtime.delete(network, bound.attachment, result)
        await self.host.run(partial(remove_namespace, netns))


def _pin(sandbox: str, path: Path) -> None:
    with open_namespace(Path(sandbox)) as fd:
        pin_namespace(fd, path)


def _mapping(port: JsonObject) -> JsonObject:
    with socket.socket() as free:
        free.bind(("", get_int(port, "HostPort")))
        host_port = free.getsockname()[1]
    return {
        "hostPort": host_port,
        "containerPort": get_int(port, "Port"),
        "protocol": _PROTOCOLS[get_int(port, "Proto")],
    }


def application(driver: BareDriver) -> web.Application:
    """Return the application that answers the calls."""
    calls = {
        "Plugin.Activate": driver.activate,
        "NetworkDriver.GetCapabilities": driver.capabilities,
        "NetworkDriver.CreateNetwork": driver.create_network,
        "NetworkDriver.CreateEndpoint": driver.create_endpoint,
        "NetworkDriver.Join": driver.join,
        "NetworkDriver.ProgramExternalConnectivity": driver.program_external_connectivity,
        "NetworkDriver.DeleteEndpoint": driver.delete_endpoint,
    }

    async def answer(request: web.Request) -> web.Response:
        call = calls.get(request.path[1:], driver.nothing)
        try:
            return web.json_response(await call(await request.json() if request.can_read_body else {}))
        except Exception as exc:  # noqa: BLE001  # the benchmark ends with it
            return web.json_response({"Err": repr(exc)}, status=500)

    app = web.Application()
    app.router.add_post("/{call}", answer)
    return app


async def serve(path: str, *, in_sandbox: bool) -> None:
    """Answer until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    runner = web.AppRunner(application(BareDriver(in_sandbox=in_sandbox)), access_log=None)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    await ended.wait()
    await runner.cleanup()


def main(path: str, attach: str) -> None:
    """Run the driver."""
    Path(PATH).mkdir(parents=True, exist_ok=True)
    asyncio.run(serve(path, in_sandbox=attach == "sandbox"))


if __name__ == "__main__":
    main(*sys.argv[1:])
