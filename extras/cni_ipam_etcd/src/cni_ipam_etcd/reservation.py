# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A reservation as it is in etcd, and the keys under which it is; pure.

```
PREFIX/addresses/NETWORK/4/010.001.000.007                    an address has at most one reservation
PREFIX/attachments/NODE/NETWORK/CONTAINER/IFNAME              and DEL finds it by its attachment
PREFIX/nodes/NODE                                             when the node was last seen
PREFIX/owners/NODE                                            the host that has this name
```

The first two have the same value. All keys of a reservation are written, and deleted, in one transaction. Addresses
have a fixed width, so that the order of keys is that of addresses.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    as_object,
    get_str,
    get_strings,
    parse_json,
    render_json,
)
from cni_ipam_etcd.ranges import IpAddress

__all__ = ["Keys", "Reservation", "last_key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The addresses of an attachment.

    Attributes:
        network: The network's name.
        node: The node that has the container.
        container_id: The container's ID.
        ifname: Name of the interface inside the container.
        addresses: At least one.
        time: When it was made, by the node's clock, e.g. `2026-11-25T10:00:00.123456+00:00`. No two are equal.
    """

    network: str
    node: str
    container_id: str
    ifname: str
    addresses: tuple[IpAddress, ...]
    time: str

    @classmethod
    def parse(cls, value: bytes) -> "Reservation":
        """Parse what `render` has written.

        Raises:
            JsonError: It is something else.
        """
        document = as_object(parse_json(value), "it")
        texts = {key: get_str(document, key) for key in ("network", "node", "containerId", "ifName", "time")}
        try:
            addresses = tuple(map(ip_address, get_strings(document, "addresses")))
        except ValueError as exc:
            raise JsonError(str(exc)) from exc
        return cls(
            network=texts["network"],
            node=texts["node"],
            container_id=texts["containerId"],
            ifname=texts["ifName"],
            addresses=addresses,
            time=texts["time"],
        )

    @property
    def document(self) -> JsonObject:
        """The reservation as JSON."""
        return {
            "addresses": [str(address) for address in self.addresses],
            "network": self.network,
            "node": self.node,
            "containerId": self.container_id,
            "ifName": self.ifname,
            "time": self.time,
        }

    def render(self) -> bytes:
        """Return the value of its keys."""
        return render_json(self.document)

    def __str__(self) -> str:
        return f"{self.ifname} of container {self.container_id} on node {self.node} since {self.time}"


class Keys:
    """The keys below a prefix.

    Args:
        prefix: The prefix, without a slash at its end.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def addresses(self, network: str, version: int) -> str:
        """Return the beginning of the keys of a network's addresses of a family, with a slash at its end."""
        return f"{self._prefix}/addresses/{network}/{version}/"

    def address(self, network: str, address: IpAddress) -> str:
        """Return the key of an address."""
        width = ".".join(f"{byte:03}" for byte in address.packed) if address.version == 4 else address.exploded  # noqa: PLR2004
        return self.addresses(network, address.version) + width

    def parse_address(self, key: str) -> int:
        """Return the address of a key, as a number.

        Raises:
            ValueError: It is not the key of an address.
        """
        text = key.rpartition("/")[2]
        return int(IPv6Address(text)) if ":" in text else int(IPv4Address(bytes(map(int, text.split(".")))))

    def attachments(self, node: str = "", network: str = "") -> str:
        """Return the beginning of the keys of attachments: all, or a node's, or those on one of its networks."""
        return "/".join((f"{self._prefix}/attachments", *filter(None, (node, network)))) + "/"

    def attachment(self, reservation: Reservation) -> str:
        """Return the key of a reservation's attachment."""
        return (
            self.attachments(reservation.node, reservation.network) + f"{reservation.container_id}/{reservation.ifname}"
        )

    def of(self, reservation: Reservation) -> list[str]:
        """Return all keys of a reservation."""
        addresses = (self.address(reservation.network, one) for one in reservation.addresses)
        return [self.attachment(reservation), *addresses]

    def owner(self, node: str) -> str:
        """Return the key of the host that has a node's name."""
        return f"{self._prefix}/owners/{node}"

    def nodes(self) -> str:
        """Return the beginning of the keys of nodes."""
        return f"{self._prefix}/nodes/"

    def node(self, node: str) -> str:
        """Return the key of a node."""
        return self.nodes() + node


def last_key(beginning: str) -> str:
    """Return the first key behind all that have a beginning, which ends with a slash."""
    return beginning[:-1] + "0"  # the character behind the slash
