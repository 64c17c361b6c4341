# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A LAN with a real DHCP server (dnsmasq), and the CNI project's DHCP daemon, in a lab."""

from typing import Final

from tests.lab import Process, wait_until
from tests.system.calls import wait_torn_down
from tests.system.scene import Scene, Subnet

__all__ = ["DHCP_SOCKET", "Lan"]

DHCP_SOCKET: Final = "/run/cni/dhcp.sock"
_DAEMON: Final = ("/usr/lib/cni/dhcp", "daemon", "-timeout", "2s", "-resendmax", "1s")
"""With these limits an ADD fails within half a minute if the server is silent."""


class Lan:
    """A LAN behind `Scene.uplink` with a DHCP server, and the CNI DHCP daemon of the host.

    Args:
        scene: Has the uplink.
        subnet: The addresses; the server has the gateway's.
        receives_release: Whether the server receives RELEASE. The plugin 1.9.1 sends it from the address 0.0.0.0,
            and Linux drops such a packet.
    """

    def __init__(self, scene: Scene, subnet: Subnet, *, receives_release: bool = True) -> None:
        self._receives_release = receives_release
        self.lab = scene.lab
        self.subnet = subnet
        self.server: Process | None = None
        self.daemon: Process | None = None
        self._end = f"{Scene.UPLINK}-end"
        self._leases = f"/run/dnsmasq-{subnet.number}.leases"
        self.lab.run("ip", "address", "add", f"{subnet.gateway}/24", "dev", self._end)

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

    def start_daemon(self) -> None:
        """Start the CNI DHCP daemon, and wait until its socket is there."""
        self.lab.run("rm", "-f", DHCP_SOCKET)
        self.daemon = self.lab.spawn(*_DAEMON)
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

    def wait_released(self) -> None:
        """Wait until the server has received RELEASE and has no lease, if it can receive it."""
        if self._receives_release:
            self.wait_logged("DHCPRELEASE")
            assert self.leases() == []

    def close(self) -> None:
        """Remove all containers, whose leases are then released, end server and daemon, and remove their files."""
        names = self.lab.docker("ps", "--all", "--quiet").split()
        if names:
            self.lab.docker("rm", "--force", *names)
        wait_torn_down(self.lab)
        self.stop_daemon()
        self.stop_server()
        for file in (DHCP_SOCKET, self._leases):
            self.lab.remove(file)
