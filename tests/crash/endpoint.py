# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A client that acts as libnetwork: the calls about one endpoint, and the moves of its link."""

from collections.abc import Callable, Sequence
from typing import Final

from cni_bridge_spec import JsonObject, find_object, find_str, get_int, get_objects, get_str
from tests.lab import CommandFailed, Lab

Answer = JsonObject | None
"""The daemon's answer, None if it died instead."""

NETWORK: Final = "c0" * 32


class Endpoint:
    """An endpoint, with the calls and the moves that libnetwork makes.

    Args:
        lab: Where it is.
        call: Calls the daemon: a method and its body. It returns the answer.
        number: A number that no other endpoint has.
        sandbox: The name of its network namespace, below `/run/netns`; it need not exist yet.
        options: Its options.
        gateways: What it reaches once it is joined.
    """

    def __init__(
        self,
        lab: Lab,
        call: Callable[[str, JsonObject], Answer],
        number: int,
        sandbox: str,
        *,
        options: JsonObject,
        gateways: Sequence[str],
    ) -> None:
        self.id = f"{number:011x}".ljust(64, "e")
        self.sandbox = sandbox
        self._lab = lab
        self._daemon = call
        self._options = options
        self._gateways = gateways
        self._interface: JsonObject = {}
        self._joined: JsonObject = {}

    @property
    def link(self) -> str:
        """The name of its link in the host namespace."""
        return f"cnib{self.id[:11]}"

    @property
    def gateways(self) -> Sequence[str]:
        """The gateways in the answer to Join; without an answer, those of the list."""
        gateways = [gateway for key in ("Gateway", "GatewayIPv6") if (gateway := find_str(self._joined, key))]
        assert gateways or not self._joined, f"Join has answered no gateway: {self._joined}"
        return gateways or self._gateways

    def create(self) -> Answer:
        """Send CreateEndpoint."""
        interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
        answer = self._call("CreateEndpoint", Interface=interface, Options=self._options)
        self._interface = find_object(answer or {}, "Interface") or {}
        return answer

    def join(self) -> Answer:
        """Send Join."""
        answer = self._call("Join", SandboxKey=f"/run/netns/{self.sandbox}", Options={})
        self._joined = answer or {}
        return answer

    def is_placed(self) -> Answer:
        """Send EndpointOperInfo, as libnetwork does after it has placed the link in the sandbox."""
        return self._call("EndpointOperInfo")

    def publish(self, host_port: int, port: int) -> Answer:
        """Send ProgramExternalConnectivity for a TCP port."""
        published: JsonObject = {"Proto": 6, "IP": "", "Port": port, "HostIP": "", "HostPort": host_port}
        return self._call(
            "ProgramExternalConnectivity",
            Options={"com.docker.network.portmap": [{**published, "HostPortEnd": host_port}]},
        )

    def leave(self) -> Answer:
        """Send Leave."""
        return self._call("Leave")

    def delete(self) -> Answer:
        """Send DeleteEndpoint."""
        return self._call("DeleteEndpoint")

    def move_in(self) -> None:
        """Move the link to the sandbox, if it is not there, and apply the answers of CreateEndpoint and Join."""
        box = f"ip -n {self.sandbox}"
        commands = []
        if "InterfaceName" in self._joined:
            commands.append(f"ip link set {self.link} netns {self.sandbox} name eth0")
            for key in ("Address", "AddressIPv6"):
                address = find_str(self._interface, key)
                if address:
                    commands.append(f"{box} addr add {address} dev eth0 {'nodad' if ':' in address else ''}")
            commands.append(f"{box} link set eth0 up")
        for route in get_objects(self._joined, "StaticRoutes"):
            via = f"via {get_str(route, 'NextHop')}" if get_int(route, "RouteType") == 0 else ""
            commands.append(f"{box} route replace {get_str(route, 'Destination')} {via} dev eth0")
        for key in ("Gateway", "GatewayIPv6"):
            gateway = find_str(self._joined, key)
            if gateway:
                commands.append(f"{box} route add default via {gateway}")
        self._lab.run("sh", "-ec", "\n".join(commands))

    def move_out(self) -> None:
        """Move the link back to the host namespace, if it is in the sandbox."""
        box = f"ip -n {self.sandbox}"
        moves = [f"{box} link set eth0 down", f"{box} link set eth0 netns 1 name {self.link}"]
        self._lab.run("sh", "-ec", "\n".join([f"{box} link show eth0 >/dev/null 2>&1 || exit 0", *moves]))

    def has_network(self) -> bool:
        """Return whether all gateways answer a ping from the sandbox."""
        enter = ("nsenter", f"--net=/run/netns/{self.sandbox}")
        try:
            for gateway in self.gateways:
                self._lab.run(*enter, "busybox", "ping", "-c", "1", "-w", "5", gateway)
        except CommandFailed:
            return False
        return True

    def _call(self, method: str, **more: JsonObject | str) -> Answer:
        return self._daemon(method, {"NetworkID": NETWORK, "EndpointID": self.id, **more})
