# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A Docker network driver of another design than ours: it has an IPAM of its own and makes the link at Join.

It is strict: unlike our daemon it refuses what it does not know and what it has already, and it does not have the calls
that Docker takes for optional. Links are pairs, with one end on a bridge of the network.
"""

import http.server
import itertools
import json
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_NETWORK: Final = "10.77.0"
_NETWORK6: Final = "fd77::"
_BRIDGE: Final = "rd0"

Body = dict[str, Any]


class Unknown(Exception):
    """The driver refuses a call."""


class RemoteDriver:
    """The driver, with what it has been sent.

    Attributes:
        calls: Method and body of each call, in order.
        refuse: Methods that it refuses, with the reason.
        hang_up: Methods that it carries out without an answer.
        dual_stack: Whether it assigns IPv6 addresses too.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.calls: list[tuple[str, Body]] = []
        self.refuse: dict[str, str] = {}
        self.hang_up: set[str] = set()
        self.dual_stack = False
        self._networks: set[str] = set()
        self._endpoints: dict[str, str] = {}
        self._numbers = itertools.count(2)

    @property
    def methods(self) -> list[str]:
        """The methods of all calls, without the handshake."""
        return [method for method, _ in self.calls if method not in {"Plugin.Activate", "GetCapabilities"}]

    def body(self, method: str) -> Body:
        """Return the body of the only call of a method."""
        (body,) = (body for called, body in self.calls if called == method)
        return body

    @contextmanager
    def running(self) -> Iterator["RemoteDriver"]:
        """Answer during the block; what the driver knows survives it, and its bridge does not."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        with _Server(str(self.socket), _handler(self)) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()
                self.socket.unlink()

    def forget(self) -> None:
        """Lose everything, as a driver without a store does when it is restarted."""
        self._networks.clear()
        self._endpoints.clear()

    def answer(self, method: str, body: Body) -> Body | None:
        """Return the reply to a call; None: there is no such method."""
        self.calls.append((method, body))
        if method in self.refuse:
            return {"Err": self.refuse[method]}
        found: Callable[[Body], Body] | None = getattr(self, f"_{method.replace('.', '_').lower()}", None)
        try:
            return None if found is None else found(body)
        except Unknown as exc:
            return {"Err": str(exc)}

    def _plugin_activate(self, _: Body) -> Body:
        return {"Implements": ["NetworkDriver"]}

    def _getcapabilities(self, _: Body) -> Body:
        return {"Scope": "local"}

    def _createnetwork(self, body: Body) -> Body:
        if body["NetworkID"] in self._networks:
            raise Unknown(f"network {body['NetworkID']} exists")
        self._networks.add(body["NetworkID"])
        _ip(f"link add {_BRIDGE} type bridge", f"address add {_NETWORK}.1/24 dev {_BRIDGE}", f"link set {_BRIDGE} up")
        if self.dual_stack:
            _ip(f"address add {_NETWORK6}1/64 dev {_BRIDGE} nodad")
        return {}

    def _deletenetwork(self, body: Body) -> Body:
        if body["NetworkID"] not in self._networks:
            raise Unknown(f"network {body['NetworkID']} not found")
        self._networks.remove(body["NetworkID"])
        _ip(f"link delete {_BRIDGE}")
        return {}

    def _createendpoint(self, body: Body) -> Body:
        if body["NetworkID"] not in self._networks or body["EndpointID"] in self._endpoints:
            raise Unknown("network not found, or endpoint exists")
        self._endpoints[body["EndpointID"]] = f"rd{next(self._numbers)}"
        address = "" if body["Interface"]["Address"] else f"{_NETWORK}.{self._endpoints[body['EndpointID']][2:]}/24"
        interface = {"Address": address}
        if self.dual_stack:
            interface["AddressIPv6"] = f"{_NETWORK6}{self._endpoints[body['EndpointID']][2:]}/64"
        return {"Interface": interface}

    def _join(self, body: Body) -> Body:
        link = self._link(body)
        _ip(f"link add {link} type veth peer name {link}p", f"link set {link}p master {_BRIDGE} up")
        return {
            "InterfaceName": {"SrcName": link, "DstPrefix": "eth"},
            "Gateway": f"{_NETWORK}.1",
            **({"GatewayIPv6": f"{_NETWORK6}1"} if self.dual_stack else {}),
            # In this order: the first one needs the second one.
            "StaticRoutes": [
                {"Destination": "192.0.2.0/24", "RouteType": 0, "NextHop": "198.51.100.1"},
                {"Destination": "198.51.100.1/32", "RouteType": 1, "NextHop": ""},
            ],
        }

    def _endpointoperinfo(self, body: Body) -> Body:
        self._link(body)
        return {"Value": {}}

    def _leave(self, body: Body) -> Body:
        self._link(body)
        return {}

    def _deleteendpoint(self, body: Body) -> Body:
        link = self._link(body)
        subprocess.run(["ip", "link", "delete", link], check=False, stderr=subprocess.DEVNULL)
        del self._endpoints[body["EndpointID"]]
        return {}

    def _link(self, body: Body) -> str:
        if body["EndpointID"] not in self._endpoints:
            raise Unknown(f"endpoint {body['EndpointID']} not found")
        return self._endpoints[body["EndpointID"]]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = False


def _handler(driver: RemoteDriver) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            method = self.path[1:].removeprefix("NetworkDriver.")
            reply = driver.answer(method, json.loads(content or b"{}"))
            if method in driver.hang_up:
                return
            self.send_response(404 if reply is None else 200)
            self.end_headers()
            self.wfile.write(b"404 page not found" if reply is None else json.dumps(reply).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
