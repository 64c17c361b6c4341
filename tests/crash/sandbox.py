# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The sandbox of a container, with a process, as Docker makes it."""

from tests.lab import Lab, wait_until

_LOOK = """ip -o link; ip -o addr; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all
cd /proc/sys/net/ipv6/conf/default; grep -H . accept_dad disable_ipv6"""


class Sandbox:
    """A network namespace below `/run/netns`, in which one process runs."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.name = name
        self._lab = lab
        lab.run("sh", "-ec", f"ip netns add {name}; ip -n {name} link set lo up")
        sleep = f"nsenter --net=/run/netns/{name} busybox sleep 86400 >/dev/null 2>&1 </dev/null & echo $!"
        self._pid = lab.run("sh", "-ec", sleep).stdout.strip()

    def look(self) -> str:
        """Return all that plugins may have left in it: links, addresses, routes, rules, settings."""
        return self._lab.run("nsenter", f"--net=/run/netns/{self.name}", "sh", "-c", _LOOK).stdout

    def end_process(self) -> None:
        """End the container."""
        process = self._lab.path(f"/proc/{self._pid}")
        self._lab.run("kill", "-KILL", self._pid)
        wait_until(lambda: not process.exists(), "the end of the process in the sandbox")

    def remove(self) -> None:
        """Remove the namespace's mount, as Docker does after the container's end, and the process if it runs."""
        if self._lab.path(f"/proc/{self._pid}").exists():
            self.end_process()
        self._lab.run("ip", "netns", "del", self.name)
