# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A LAN with a real router (dnsmasq) that announces an IPv6 prefix."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, IPv6Interface, IPv6Network

from tests.lab import Container, Lab, Process
from tests.system.scene import Scene


class Router:
    """Announces a prefix on the other end of the uplink."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.prefix = IPv6Network(f"fdaa:{number}::/64")
        self._lab = lab
        self._link = f"{Scene.UPLINK}-end"
        self._process: Process | None = None
        lab.run("ip", "address", "add", f"{self.address}/64", "dev", self._link, "nodad")

    @property
    def address(self) -> IPv6Address:
        """Its own address."""
        return self.prefix[1]

    def start(self, lifetime: str = "2h") -> None:
        """Start it, and wait until it has announced its prefix."""
        process = self._process = self._lab.spawn(
            *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--log-dhcp", "--log-facility=-"),
            *("--user=root", "--pid-file=", f"--interface={self._link}", "--bind-interfaces", "--enable-ra"),
            *(f"--dhcp-range={self.prefix.network_address},ra-only,64,{lifetime}", f"--ra-param={self._link},2"),
        )
        process.wait_ready(lambda: "RTR-ADVERT" in process.log(), 20)

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def announced(self, container: Container) -> list[IPv6Interface]:
        """Return the container's addresses in its prefix."""
        return [
            one for one in container.link().addresses if isinstance(one, IPv6Interface) and one.network == self.prefix
        ]


@contextmanager
def on_bridge(lab: Lab, bridge: str) -> Iterator[None]:
    """Have the uplink in a bridge, whose packets Docker's rules do not drop."""
    rule = ("DOCKER-USER", "-i", bridge, "-o", bridge, "-j", "ACCEPT")
    lab.run("ip", "link", "add", bridge, "type", "bridge")
    lab.run("ip", "link", "set", bridge, "up")
    lab.run("ip", "link", "set", Scene.UPLINK, "master", bridge)
    for command in ("iptables", "ip6tables"):
        lab.run(command, "-I", *rule, check=False)  # before Engine 27 Docker has no such chain for IPv6
    try:
        yield
    finally:
        for command in ("iptables", "ip6tables"):
            lab.run(command, "-D", *rule, check=False)
        lab.run("ip", "link", "del", bridge)
