# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Guarded networks, made by the plugins as they are installed, and containers that may do anything inside."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

import cni_invoker
from cni_bridge_spec import JsonObject, JsonValue
from cni_egress.plugin import PLUGIN
from cni_invoker import Attachment, NetworkConfigurationList, Result
from tests.egress.internet import HOST, open_inside
from tests.egress.packets import IpAddress, Packet, frame
from tests.kernel.namespace import Namespace, made_namespace

PLUGINS: Final = Path("/usr/lib/cni")
EGRESS: Final = Path(sys.executable).with_name("egress")


@dataclass(frozen=True, slots=True)
class Container:
    """A container on a guarded network."""

    attachment: Attachment
    namespace: Namespace
    result: Result

    @property
    def four(self) -> IPv4Address:
        """Its IPv4 address."""
        return next(ip.address.ip for ip in self.result.ips if isinstance(ip.address.ip, IPv4Address))

    @property
    def six(self) -> IPv6Address:
        """Its IPv6 address."""
        return next(ip.address.ip for ip in self.result.ips if isinstance(ip.address.ip, IPv6Address))

    def of(self, other: IpAddress) -> IpAddress:
        """Its address of another one's family."""
        return self.four if other.version == 4 else self.six

    @property
    def mac(self) -> str:
        """Its hardware address."""
        return next(link.mac for link in self.result.interfaces if link.sandbox)

    @property
    def port(self) -> str:
        """The host's end of its link."""
        return next(link.name for link in self.result.interfaces if not link.sandbox and link.name.startswith("veth"))

    def send(self, *frames: bytes) -> None:
        """Send frames as they are."""
        with open_inside(self.namespace, socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("eth0", 0))
            for one in frames:
                raw.send(one)

    def gateway_mac(self) -> str:
        """The hardware address of the host's end, to which packets for the outside go."""
        link = next((link.name for link in self.result.interfaces if not link.sandbox), "")
        return str(HOST.link(link)["address"])

    def emit(self, *packets: Packet) -> None:
        """Send packets to the gateway, as they are."""
        gateway = self.gateway_mac()
        self.send(*(frame(packet, self.mac, gateway) for packet in packets))

    def connect(self, address: str, port: int) -> str:
        """Connect by TCP; gives `open`, or the reason for which it is not."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with open_inside(self.namespace, family, socket.SOCK_STREAM) as client:
            client.settimeout(3.0)
            try:
                client.connect((address, port))
            except TimeoutError:
                return "no answer"
            except OSError as exc:
                return exc.strerror or str(exc)
            return "open"


class Network:
    """A guarded network.

    Args:
        directory: For the plugins' files.
        name: Its name, and the beginning of its bridge's name.
        number: The third octet of its subnet.
        allow: The allow-list.
        settings: Further settings of the plugin `egress`.
        main: What the first plugin has besides, e.g. another type.
        in_process: Whether the plugin `egress` runs in this process.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        number: int,
        allow: Sequence[str] = (),
        *,
        settings: JsonObject | None = None,
        main: JsonObject | None = None,
        in_process: bool = False,
    ) -> None:
        plugins = directory / "plugins"
        plugins.mkdir(exist_ok=True)
        if not (plugins / "egress").exists():
            (plugins / "egress").symlink_to(EGRESS)
        offered = {"egress": PLUGIN.answer} if in_process else {}
        self.runtime = cni_invoker.Runtime([plugins, PLUGINS], in_process=offered)
        self._in_process = in_process
        self._directory = directory
        self.name = name
        self.bridge = f"{name}0"
        self.gateways = (f"10.66.{number}.1", f"fd66:{number}::1")
        self._number = number
        self._settings: JsonObject = {"allow": list(allow), **(settings or {})}
        self._main: JsonObject = main or {"type": "bridge", "bridge": self.bridge, "isGateway": True}

    @property
    def configuration(self) -> NetworkConfigurationList:
        """The list."""
        ranges: list[JsonValue] = [
            [{"subnet": f"10.66.{self._number}.0/24"}],
            [{"subnet": f"fd66:{self._number}::/64"}],
        ]
        routes: list[JsonValue] = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
        ipam: JsonObject = {
            "type": "host-local",
            "dataDir": str(self._directory / "host-local"),
            "ranges": ranges,
            "routes": routes,
        }
        egress: JsonObject = {"type": "egress", "capabilities": {"egress": True}, **self._settings}
        plugins: list[JsonValue] = [{**self._main, "ipam": ipam}, egress]
        return NetworkConfigurationList.from_document({"cniVersion": "1.0.0", "name": self.name, "plugins": plugins})

    @contextmanager
    def container(self, name: str, *allow: str) -> Iterator[Container]:
        """Attach a container, with further entries, for the length of the block."""
        with made_namespace(name) as namespace:
            # Duplicate address detection would take most of the time of these tests.
            # No solicitations of routers: a test counts what a container sends.
            settings = ("accept_dad=0", "router_solicitations=0")
            namespace.run("busybox sysctl -qw " + " ".join(f"net.ipv6.conf.default.{one}" for one in settings))
            namespace.ip("link set lo up")
            attachment = self.attachment(name, *allow)
            try:
                yield Container(attachment, namespace, asyncio.run(self.runtime.add(self.configuration, attachment)))
            finally:
                self.delete(attachment)

    def attachment(self, name: str, *allow: str) -> Attachment:
        """The attachment of a container."""
        more: JsonObject = {"egress": {"allow": list(allow)}} if allow else {}
        return Attachment(container_id=name, ifname="eth0", netns=f"/run/netns/{name}", capability_args=more)

    def add(self, attachment: Attachment) -> Result:
        """ADD."""
        return asyncio.run(self.runtime.add(self.configuration, attachment))

    def delete(self, attachment: Attachment) -> None:
        """DEL."""
        asyncio.run(self.runtime.delete(self.configuration, attachment, None))

    def check(self, container: Container) -> None:
        """CHECK."""
        asyncio.run(self.runtime.check(self.configuration, container.attachment, container.result))

    def call(self, command: str, container: str = "", settings: JsonObject | None = None) -> JsonObject:
        """Call the plugin `egress` by itself, with further settings; gives its answer."""
        config: JsonObject = {
            "cniVersion": "1.1.0",
            "name": self.name,
            "type": "egress",
            **self._settings,
            **(settings or {}),
        }
        environment = {"CNI_COMMAND": command, "CNI_PATH": str(PLUGINS)}
        if container:
            environment |= {
                "CNI_CONTAINERID": container,
                "CNI_IFNAME": "eth0",
                "CNI_NETNS": f"/run/netns/{container}",
            }
        environment, stdin = {**os.environ, **environment}, json.dumps(config).encode()
        if self._in_process:
            _, stdout, _ = PLUGIN.answer(environment, stdin)
        else:
            stdout = subprocess.run([EGRESS], input=stdin, stdout=subprocess.PIPE, env=environment, check=False).stdout
        answer: JsonObject = json.loads(stdout or b"{}")
        return answer

    def gc(self, *valid: str) -> JsonObject:
        """GC of the plugin `egress`, with the containers that are valid."""
        attachments: list[JsonValue] = [{"containerID": one, "ifname": "eth0"} for one in valid]
        return self.call("GC", settings={"cni.dev/valid-attachments": attachments})

    def leases(self) -> list[Path]:
        """The files in which host-local remembers which address it gave last."""
        return [*(self._directory / "host-local" / self.name).glob("last_reserved_ip.*")]

    def remove(self) -> None:
        """Remove the bridge, which the plugin `bridge` leaves."""
        if self.bridge in HOST.links():
            HOST.ip(f"link delete {self.bridge}")
