# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The two sides: the same four networks, by Docker's own bridge and by ours, with two containers that stay."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Final, Self

from cni_bridge_spec import JsonObject, JsonValue
from tests.lab import Lab

SERVER: Final = ("busybox", "httpd", "-f", "-p", "8080", "-h", "/etc")
"""What containers run: each answers on a port."""
_NETWORKS: Final = {"net": 1, "second": 2, "internal": 3, "addressed": 4}


class Side(ABC):
    """Networks and containers of one driver.

    The networks are `NAME-net`, `NAME-second`, `NAME-internal` and `NAME-addressed`, the containers `NAME-peer` and
    `NAME-other`.

    Attributes:
        name: What the names of its networks and containers begin with.
        number: Of its addresses, e.g. 91 for `10.91.…` and `fd91:…`.
    """

    name: str
    number: int

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @contextmanager
    def prepared(self) -> Iterator[Self]:
        """Make the networks and the peer, and remove them at the end."""
        for name, number in _NETWORKS.items():
            self._create(name, f"10.{self.number}.{number}", f"fd{self.number}:{number}:")
        for name, first, *others in ((self.peer, *_NETWORKS), (self.other, "second")):
            self.lab.docker("run", "--detach", "--name", name, "--network", f"{self.name}-{first}", *SERVER)
            for network in others:
                self.lab.docker("network", "connect", f"{self.name}-{network}", name)
        try:
            yield self
        finally:
            self.lab.docker("rm", "--force", self.peer, self.other)
            for name in _NETWORKS:
                self.lab.docker("network", "rm", f"{self.name}-{name}")

    @abstractmethod
    def _create(self, name: str, ipv4: str, ipv6: str) -> None:
        """Make a network with the addresses that begin in these ways; `internal` and `addressed` say its kind."""

    @property
    def peer(self) -> str:
        """The name of the container that is on all networks."""
        return f"{self.name}-peer"

    @property
    def other(self) -> str:
        """The name of the container that is on `NAME-second` only."""
        return f"{self.name}-other"

    def addresses(self, container: str, network: int) -> tuple[str, ...]:
        """Return the addresses of one of these containers on a network, one of each family."""
        return self._addresses[container, network]

    @cached_property
    def _addresses(self) -> dict[tuple[str, int], tuple[str, ...]]:
        found = [(self.peer, name, number) for name, number in _NETWORKS.items()]
        found.append((self.other, "second", _NETWORKS["second"]))
        return {
            (container, number): tuple(
                str(address.ip) for address in self.lab.container(container).endpoint(f"{self.name}-{name}").addresses
            )
            for container, name, number in found
        }

    @property
    def words(self) -> dict[str, str]:
        """What the commands of a case may have in braces, but for the container's name and port."""
        number = _NETWORKS["addressed"]
        return {
            **{name: f"{self.name}-{name}" for name in _NETWORKS},
            "peer": self.peer,
            "other": self.addresses(self.other, _NETWORKS["second"])[0],
            "ip4_of_net": f"10.{self.number}.{_NETWORKS['net']}.200",
            "ip4": f"10.{self.number}.{number}.200",
            "ip6": f"fd{self.number}:{number}::200",
        }

    @property
    def roles(self) -> dict[str, str]:
        """What stands for the names and addresses of this side."""
        roles = {self.name: "SIDE", f"10.{self.number}": "NET", f"fd{self.number}": "NET6"}
        for (container, network), addresses in self._addresses.items():
            who = container.removeprefix(f"{self.name}-")
            roles |= {a: f"{'NET6' if ':' in a else 'NET'}.{network}.{who}" for a in addresses}
        return roles

    def gateways(self, network: int) -> tuple[str, str]:
        """The first address of each subnet of a network."""
        return f"10.{self.number}.{network}.1", f"fd{self.number}:{network}::1"

    def network_of(self, address: str) -> int | None:
        """Return the number of the network that an address is of."""
        for number in _NETWORKS.values():
            if address.startswith((f"10.{self.number}.{number}.", f"fd{self.number}:{number}:")):
                return number
        return None


class Theirs(Side):
    """Docker's own bridge."""

    name = "theirs"
    number = 91

    def _create(self, name: str, ipv4: str, ipv6: str) -> None:
        internal = ("--internal",) if name == "internal" else ()
        subnets = (f"--subnet={ipv4}.0/24", f"--subnet={ipv6}:/64")
        self.lab.docker("network", "create", "--ipv6", *subnets, *internal, f"{self.name}-{name}")


class Ours(Side):
    """Lists with `bridge`, `firewall` and `portmap`; their plugins choose the addresses, except on `addressed`."""

    name = "ours"
    number = 92

    def _create(self, name: str, ipv4: str, ipv6: str) -> None:
        subnets = (f"--subnet={ipv4}.0/24", f"--subnet={ipv6}:/64")
        if name == "addressed":
            self._write_list(f"{self.name}-{name}", f"{ipv4}.0/24", f"{ipv6}:/64")
            gateways = (f"--gateway={ipv4}.1", f"--gateway={ipv6}:1")
            self.lab.docker("network", "create", "-d=cni-bridge", "--ipv6", *subnets, *gateways, f"{self.name}-{name}")
            return
        internal = ("--internal",) if name == "internal" else ()
        self.lab.run("cni-bridge", "network", "create", *subnets, *internal, f"{self.name}-{name}")

    def _write_list(self, name: str, *subnets: str) -> None:
        """Write the list that `cni-bridge network create` makes, which would make a network with the null IPAM."""
        routes: list[JsonValue] = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
        ranges: list[JsonValue] = [[{"subnet": subnet}] for subnet in subnets]
        ipam: JsonObject = {"type": "host-local", "ranges": ranges, "routes": routes}
        bridge: JsonObject = {
            "type": "bridge",
            "bridge": "cni-addressed",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": ipam,
        }
        portmap: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}
        plugins: list[JsonValue] = [bridge, {"type": "firewall"}, portmap]
        self.lab.write(f"/etc/cni/net.d/{name}.conflist", {"cniVersion": "1.0.0", "name": name, "plugins": plugins})
