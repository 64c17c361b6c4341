# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A LAN with a real DHCP server (dnsmasq), and the CNI project's DHCP daemon, in a lab."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.lab import Lab, Process, wait_until
from tests.system.calls import wait_torn_down
from tests.system.scene import Scene, Subnet

DHCP_SOCKET: Final = "/run/cni/dhcp.sock"
_UNIT: Final = Path(__file__).parents[2] / "docker/systemd/cni-bridge-dhcp.service"
_LISTENS: Final = "listens"
_CAPTURE: Final = f"""
import socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
packets.bind((sys.argv[1], 0x0800))
print("{_LISTENS}", flush=True)
while True:
    packet = packets.recv(2048)
    udp = 4 * (packet[0] & 15)
    message = packet[udp + 8:]
    if packet[9] == 17 and packet[udp + 2:udp + 4] == b"\\0C" and bytes([53, 1, 7]) in message[240:]:
        released, sender, receiver = (socket.inet_ntoa(part[:4]) for part in (message[12:], packet[12:], packet[16:]))
        print("RELEASE of", released, "from", sender, "to", receiver, flush=True)
"""
"""Writes each RELEASE (RFC 2131) that arrives at a link, before the kernel decides whether it is delivered."""


def _daemon_command() -> Sequence[str]:
    """Return the command of the unit, as systemd reads it, with the unit's environment."""
    lines = _UNIT.read_text("utf-8").splitlines()
    (command,) = (line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart="))
    variables = (line.removeprefix("Environment=") for line in lines if line.startswith("Environment="))
    return "env", *variables, *shlex.split(command.replace("$$", "$"))


class Lan:
    """A LAN with a DHCP server, and the CNI DHCP daemon of the host.

    Args:
        lab: Where both run.
        subnet: The addresses; the server has the gateway's.
        link: The server's link.
        loses_release: Whether the plugin `dhcp` sends RELEASE from the address 0.0.0.0 to the server's address, as
            1.6.0 to 1.9.1 do. Linux drops such a packet. 1.1.1 sends it from 0.0.0.0 to all, which Linux accepts.
    """

    def __init__(
        self, lab: Lab, subnet: Subnet, *, link: str = f"{Scene.UPLINK}-end", loses_release: bool = False
    ) -> None:
        self._loses_release = loses_release
        self.lab = lab
        self.subnet = subnet
        self.server: Process | None = None
        self.daemon: Process | None = None
        self._end = link
        self._leases = f"/run/dnsmasq-{subnet.number}.leases"
        self.lab.run("ip", "address", "add", f"{subnet.gateway}/24", "dev", self._end)
        self._capture = self.lab.spawn("python3", "-c", _CAPTURE, self._end)
        self._capture.wait_ready(lambda: _LISTENS in self._capture.log(), 10)

    def start_server(self, *, first: int = 10, last: int = 99, lease: str = "2m") -> None:
        """Start the server, with a range of the LAN's addresses; it keeps its leases from before."""
        prefix = self.subnet.gateway.rpartition(".")[0]
        self.server = self.lab.spawn(
            *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--no-ping", "--log-dhcp"),
            *("--log-facility=-", "--user=root", "--pid-file=", f"--interface={self._end}", "--bind-interfaces"),
            *(f"--dhcp-leasefile={self._leases}", f"--dhcp-range={prefix}.{first},{prefix}.{last},{lease}"),
            "--dhcp-authoritative",
        )
        self.wait_logged("DHCP, sockets bound")

    def stop_server(self) -> None:
        """End the server; its leases stay in its file."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def start_daemon(self, *, with_unit: bool = True) -> None:
        """Start the CNI DHCP daemon, as the unit does or with its own limits, and wait until its socket is there."""
        self.lab.run("rm", "-f", DHCP_SOCKET)
        command = _daemon_command() if with_unit else ("/usr/lib/cni/dhcp", "daemon")
        self.daemon = self.lab.spawn(*command)
        wait_until(lambda: self.lab.path(DHCP_SOCKET).is_socket(), "the socket of the CNI DHCP daemon")

    def stop_daemon(self) -> None:
        """Kill the CNI DHCP daemon; its leases are lost."""
        if self.daemon is not None:
            self.daemon.close()
            self.daemon = None

    def restart_daemon(self) -> None:
        """Kill the CNI DHCP daemon, and start it again."""
        self.stop_daemon()
        self.start_daemon()

    def forget_leases(self) -> None:
        """Have the server, which does not run, forget all leases."""
        self.lab.remove(self._leases)

    def leases(self) -> list[str]:
        """Return the addresses that the server has given."""
        text = self.lab.run("cat", self._leases, check=False).stdout
        return sorted(line.split()[2] for line in text.splitlines() if line)

    def hostnames(self) -> list[str]:
        """Return the names that the server's clients have."""
        text = self.lab.run("cat", self._leases, check=False).stdout
        return sorted(line.split()[3] for line in text.splitlines() if line)

    def count(self, message: str) -> int:
        """Return how many messages of a kind the server has logged, e.g. `DHCPACK`."""
        assert self.server is not None
        return sum(f" {message}(" in line for line in self.server.log().splitlines())

    def wait_logged(self, text: str, *, count: int = 1, timeout_s: float = 60.0) -> None:
        """Wait until the server has logged a text so many times."""
        server = self.server
        assert server is not None
        wait_until(lambda: server.log().count(text) >= count, f"{text} in the log of dnsmasq", timeout_s, poll_s=0.05)

    def wait_released(self, address: str) -> None:
        """Wait until RELEASE of an address arrives at the server's link; if the server receives it, it has no lease."""
        release = f"RELEASE of {address} from "
        wait_until(lambda: release in self._capture.log(), release, 60)
        is_lost = f"{release}0.0.0.0 to {self.subnet.gateway}\n" in self._capture.log()
        assert is_lost == self._loses_release, self._capture.log()
        if self._loses_release:
            assert self.leases() == [address]
        else:
            self.wait_logged("DHCPRELEASE")
            assert self.leases() == []

    def close(self) -> None:
        """Remove all containers, whose leases are then released, end server and daemon, and remove their files."""
        names = self.lab.docker("ps", "--all", "--quiet").split() if self.lab.dockerd is not None else []
        if names:
            self.lab.docker("rm", "--force", *names)
            wait_torn_down(self.lab)
        self.stop_daemon()
        self.stop_server()
        self._capture.close()
        for file in (DHCP_SOCKET, self._leases):
            self.lab.remove(file)
