# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A network of any driver whose addresses come from an IPAM driver, as the Engine API describes it; pure.

```
{"Id": "9f3c…", "Name": "lan", "Driver": "macvlan",
 "IPAM": {"Driver": "cni-bridge", "Options": {"cni.ipam": "lan"},
          "Config": [{"Subnet": "10.1.2.0/24", "Gateway": "10.1.2.1", "AuxiliaryAddresses": {"printer": "10.1.2.9"}}]},
 "Containers": {"b1f0…": {"Name": "web", "EndpointID": "77ad…", "IPv4Address": "10.1.2.3/24", "IPv6Address": ""}}}
```
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from cni_bridge_spec import JsonObject, find_object, find_str, get_object, get_objects, get_str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineIpamNetwork:
    """A network whose addresses come from an IPAM driver.

    Attributes:
        id: Docker's network ID.
        name: The user's name for it.
        options: The user's `--ipam-opt` options.
        subnets: Its subnets.
        addresses: The addresses that it has: of endpoints, gateways, and those given with `--aux-address`.
        containers: The names of its containers, by address.
    """

    id: str
    name: str
    options: JsonObject
    subnets: frozenset[IPv4Network | IPv6Network]
    addresses: frozenset[IPv4Address | IPv6Address]
    containers: Mapping[IPv4Address | IPv6Address, str] = field(default_factory=dict, hash=False)

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the answer to `GET /networks/{id}`.

        Raises:
            JsonError: A key is missing or its value has another type.
            ValueError: A subnet or an address is invalid.
        """
        ipam = get_object(document, "IPAM")
        configured = get_objects(ipam, "Config")
        of_endpoints = {ip_address(text.partition("/")[0]): name for text, name in _of_endpoints(document)}
        return cls(
            id=get_str(document, "Id"),
            name=get_str(document, "Name"),
            options=find_object(ipam, "Options") or {},
            subnets=frozenset(
                ip_network(subnet, strict=False) for one in configured if (subnet := find_str(one, "Subnet"))
            ),
            addresses=frozenset(
                (*(ip_address(text.partition("/")[0]) for text in _of_networks(configured) if text), *of_endpoints)
            ),
            containers={address: name for address, name in of_endpoints.items() if name},
        )


def has_ipam_driver(document: JsonObject, driver: str) -> bool:
    """Return whether a network has the IPAM driver of this name."""
    return find_str(find_object(document, "IPAM") or {}, "Driver") == driver


def _of_networks(configured: tuple[JsonObject, ...]) -> Iterator[str | None]:
    for one in configured:
        yield find_str(one, "Gateway")
        auxiliary = find_object(one, "AuxiliaryAddresses") or {}
        yield from (find_str(auxiliary, name) for name in auxiliary)


def _of_endpoints(document: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the addresses of a network's endpoints, each with the name of its container."""
    containers = get_object(document, "Containers")
    for key in containers:
        endpoint = get_object(containers, key)
        for family in ("IPv4Address", "IPv6Address"):
            if text := find_str(endpoint, family):
                yield text, find_str(endpoint, "Name") or ""
