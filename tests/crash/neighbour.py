# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The container beside the one of a story: it must keep everything that it has, and all of its connections.

FORWARD drops what no rule accepts. So the neighbour reaches another host only with its rules of `firewall` and its
masquerading, and is reached at its published port only with its rules of `portmap`.
"""

from typing import Final

from cni_bridge_spec import JsonObject
from tests.crash.endpoint import Endpoint
from tests.crash.sandbox import Sandbox
from tests.lab import Lab
from tests.system.peer import HOST_IP, OUTSIDE_IP

NEIGHBOUR_SANDBOX: Final = "neighbour"
PORTMAP: Final[JsonObject] = {"type": "portmap", "capabilities": {"portMappings": True}}
"""The plugin at the end of the neighbour's list."""

_OUTSIDE_IP6: Final = "fd98::2"
_PORT: Final = 8080
_SERVE: Final = """mkdir -p /run/crash/{name}; echo {name} >/run/crash/{name}/name
ip netns exec {name} busybox httpd -p 80 -h /run/crash/{name}"""
_OUTSIDE: Final = f"""
ip netns add outside
ip link add wire0 type veth peer name eth0 netns outside
ip address add {HOST_IP}/24 dev wire0
ip address add fd98::1/64 dev wire0 nodad
ip link set wire0 up
ip -n outside address add {OUTSIDE_IP}/24 dev eth0
ip -n outside address add {_OUTSIDE_IP6}/64 dev eth0 nodad
ip -n outside link set eth0 up
{_SERVE.format(name="outside")}
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
iptables -P FORWARD DROP
ip6tables -P FORWARD DROP
iptables -A FORWARD -m conntrack --ctstate DNAT -j ACCEPT
"""
"""Another host, and the rules of a usual firewall: what is published may be reached (docs/recipes.md)."""

_TENTATIVE: Final = "fe80:"
"""In each line about a link-local address, which the kernel checks for a while before it uses it."""
_LOOK: Final = "ip -o route show table all; tc qdisc show"
"""What `LabState` does not have of the links on the host."""
_TRY: Final = r"""
ask() {
    printf 'GET /name HTTP/1.0\r\n\r\n' | nsenter --net="/run/netns/$1" busybox nc -w 5 "$2" "$3" 2>&1 | tail -n 1
}
for gateway in $gateways; do
    { nsenter --net=/run/netns/neighbour busybox ping -c 1 -w 5 "$gateway" >/dev/null || echo "gateway $gateway"; } &
done
for address in $outside; do
    [ "$(ask neighbour "$address" 80)" = outside ] || echo "the host outside, $address" &
done
[ "$(ask outside $published)" = neighbour ] || echo "from outside to its published port"
wait
"""
"""Prints which connections fail."""


def connect_outside(lab: Lab) -> None:
    """Connect another host to the lab, whose firewall forwards nothing by itself."""
    lab.run("sh", "-ec", _OUTSIDE)


class Neighbour:
    """A container with a published port.

    Args:
        lab: The lab, after `connect_outside`.
        endpoint: Its endpoint, which is made here. Its list has `firewall`, and ends with `PORTMAP`.
        sandbox: Its sandbox.
    """

    def __init__(self, lab: Lab, endpoint: Endpoint, sandbox: Sandbox) -> None:
        self.id = endpoint.id
        self._lab = lab
        self._sandbox = sandbox
        assert "Interface" in (endpoint.create() or {})
        endpoint.join()
        endpoint.move_in()
        assert endpoint.is_placed() == {"Value": {}}  # after the sync, which no later run has to do then
        assert endpoint.publish(_PORT, 80) == {}
        lab.run("sh", "-ec", _SERVE.format(name=NEIGHBOUR_SANDBOX))
        self._connections = {
            "gateways": " ".join(endpoint.gateways),
            "outside": " ".join(_OUTSIDE_IP6 if ":" in found else OUTSIDE_IP for found in endpoint.gateways),
            "published": f"{HOST_IP} {_PORT}",
        }
        self._on_host, self._inside = self._look()
        self.assert_intact("at the start")

    def assert_intact(self, where: str) -> None:
        """Assert that there are no `differences`."""
        found = self.differences()
        assert not found, f"{where}; the neighbour is not as it was:\n" + "\n".join(found)

    def differences(self) -> list[str]:
        """Return what it had at first and has not now, what is new in its sandbox, and which connections fail."""
        on_host, inside = self._look()
        found = [f"the host has lost: {line}" for line in sorted(self._on_host - on_host)]
        found += [f"its sandbox has lost: {line}" for line in sorted(self._inside - inside)]
        found += [f"its sandbox has more: {line}" for line in sorted(inside - self._inside)]
        silent = self._lab.run("sh", "-c", _TRY, env=self._connections).stdout.splitlines()
        return [*found, *(f"no connection: {line}" for line in silent)]

    def _look(self) -> tuple[frozenset[str], frozenset[str]]:
        texts = (self._lab.run("sh", "-c", _LOOK).stdout, self._sandbox.look())
        on_host, inside = (frozenset(line for line in text.splitlines() if _TENTATIVE not in line) for text in texts)
        return on_host, inside
