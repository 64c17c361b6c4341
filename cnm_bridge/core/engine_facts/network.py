# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks as the engine describes them: those of this driver, and those with addresses of an IPAM driver; pure.

The relevant part of `GET /networks/{id}` (Docker Engine API 1.41 and later):

```
{"Id": "6f9c…", "Name": "blue", "Driver": "cni-bridge", "Scope": "local", "Internal": false,
 "Options": {"cni.network": "lan"},
 "Labels": {"com.docker.compose.project": "shop", "com.docker.compose.network": "blue"},
 "IPAM": {"Driver": "null", "Config": [{"Subnet": "0.0.0.0/0"}]},
 "Containers": {"b1f0…": {"Name": "web", "EndpointID": "77ad…", "MacAddress": "ee:77:5c:0d:4a:3b",
                          "IPv4Address": "10.1.2.3/24", "IPv6Address": ""}}}
```

`Containers` has every endpoint in dockerd's store. The key of an endpoint that has not been joined yet is
`ep-<endpoint ID>` (moby `daemon/network.go`, buildContainerAttachments). An endpoint that is being created is missing.

A swarm manager also describes networks that its host does not have, because no task on them runs there. `Containers`
is then null, and the options of the host's `--config-only` network are missing (moby
`daemon/cluster/convert/network.go`, BasicNetworkFromGRPC).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, Self

from cni_bridge_spec import JsonObject, find_object, find_str, get_bool, get_object, get_objects, get_str
from cni_bridge_state import PoolRecord

_IPV4, _IPV6 = 4, 6
_CONTAINER_ID: Final = re.compile(r"[0-9a-f]{64}")
_COMPOSE_NAME: Final = "com.docker.compose.network"
_SWARM: Final = "swarm"

_OWN: Final = "cni.ipam"
"""The option of `--ipam-opt` that this driver needs as Docker's IPAM driver, whichever name it has in Docker."""

_NO_POOLS: Final = frozenset({None, "", "0.0.0.0/0", "::/0"})
"""The subnets of the null IPAM driver, which stand for "no pool"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEndpoint:
    """An endpoint in Docker's store.

    Attributes:
        name: The container's name.
        mac: Its MAC address, None if Docker does not know it.
        container_id: The container's ID, None if the endpoint is in no container's sandbox.
    """

    id: str
    name: str
    address: IPv4Interface | None
    address_ipv6: IPv6Interface | None
    mac: str | None
    container_id: str | None = None

    @classmethod
    def from_json(cls, key: str, document: JsonObject) -> Self:
        """Read one key of `Containers` and its value."""
        address, address_ipv6 = find_str(document, "IPv4Address"), find_str(document, "IPv6Address")
        return cls(
            id=get_str(document, "EndpointID"),
            name=find_str(document, "Name") or "",
            address=IPv4Interface(address) if address else None,
            address_ipv6=IPv6Interface(address_ipv6) if address_ipv6 else None,
            mac=find_str(document, "MacAddress") or None,
            container_id=key if _CONTAINER_ID.fullmatch(key) else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNetwork:
    """A network in Docker's store.

    Attributes:
        compose_name: Its name in the compose file that it was made from, without the project's name; None if there is
            none.
        options: The user's `-o` options.
        pools: The address pools of Docker's own IPAM, without those of a family that is switched off; none with the
            null driver. Their gateway is None if Docker chose it: it shows only what the user gave.
        endpoints: Its endpoints on this host, by ID.
    """

    id: str
    name: str
    driver: str
    internal: bool
    options: Mapping[str, str]
    pools: tuple[PoolRecord, ...]
    endpoints: Mapping[str, EngineEndpoint]
    compose_name: str | None = None

    def has_container(self, container_id: str) -> bool:
        """Return whether a container has an endpoint; Docker also lists networks for it on which it has none."""
        return any(endpoint.container_id == container_id for endpoint in self.endpoints.values())

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the answer to `GET /networks/{id}`."""
        options = find_object(document, "Options") or {}
        # An answer without the list is incomplete, and must not count as a network without endpoints.
        containers = get_object(document, "Containers")
        endpoints = (EngineEndpoint.from_json(key, get_object(containers, key)) for key in containers)
        return cls(
            id=get_str(document, "Id"),
            name=get_str(document, "Name"),
            driver=find_str(document, "Driver") or "",
            internal=get_bool(document, "Internal"),
            options={key: get_str(options, key) for key in options},
            pools=find_pools(document),
            endpoints={endpoint.id: endpoint for endpoint in endpoints},
            compose_name=find_str(find_object(document, "Labels") or {}, _COMPOSE_NAME),
        )


def is_on_this_host(document: JsonObject) -> bool:
    """Return whether an answer describes a network of the host, and not one that only the swarm has."""
    return document.get("Scope") != _SWARM or document.get("Containers") is not None


def find_pools(document: JsonObject) -> tuple[PoolRecord, ...]:
    """Return the address pools of a network, see `EngineNetwork`, also of one in the answer to `GET /networks`."""
    ipam = find_object(document, "IPAM") or {}
    options = find_object(ipam, "Options") or {}
    is_own = _OWN in options or (not options and find_str(ipam, "Driver") == find_str(document, "Driver"))
    pools = get_objects(ipam, "Config")
    configured = (pool for pool in pools if find_str(pool, "Subnet") not in _NO_POOLS)
    # Docker keeps a subnet of a family that is switched off, and does not use it. Before 28, IPv4 is always on.
    enabled = {_IPV4: document.get("EnableIPv4") is not False, _IPV6: document.get("EnableIPv6") is not False}
    return tuple(
        pool
        for pool in (_parse_pool(document, is_own=is_own) for document in configured)
        if enabled[pool.subnet.version]
    )


def _parse_pool(document: JsonObject, *, is_own: bool) -> PoolRecord:
    gateway = find_str(document, "Gateway")
    return PoolRecord(
        subnet=ip_network(get_str(document, "Subnet"), strict=False),
        gateway=ip_address(gateway.partition("/")[0]) if gateway else None,
        is_own=is_own,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineIpamNetwork:
    """A network of any driver whose addresses come from an IPAM driver.

    ```
    {"Id": "9f3c…", "Name": "lan", "Driver": "macvlan",
     "IPAM": {"Driver": "cni-bridge", "Options": {"cni.ipam": "lan"},
              "Config": [{"Subnet": "10.1.2.0/24", "Gateway": "10.1.2.1", "AuxiliaryAddresses": {"nas": "10.1.2.9"}}]},
     "Containers": {"b1f0…": {"Name": "web", "EndpointID": "77ad…", "IPv4Address": "10.1.2.3/24", "IPv6Address": ""}}}
    ```

    Attributes:
        options: The user's `--ipam-opt` options.
        addresses: The addresses that it has: of endpoints, gateways, and those given with `--aux-address`.
    """

    id: str
    name: str
    options: JsonObject
    subnets: frozenset[IPv4Network | IPv6Network]
    addresses: frozenset[IPv4Address | IPv6Address]

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read the answer to `GET /networks/{id}`."""
        ipam = get_object(document, "IPAM")
        configured = get_objects(ipam, "Config")
        return cls(
            id=get_str(document, "Id"),
            name=get_str(document, "Name"),
            options=find_object(ipam, "Options") or {},
            subnets=frozenset(
                ip_network(subnet, strict=False) for pool in configured if (subnet := find_str(pool, "Subnet"))
            ),
            addresses=frozenset(
                ip_address(text.partition("/")[0])
                for text in (*_of_networks(configured), *_of_endpoints(document))
                if text
            ),
        )


def has_ipam_driver(document: JsonObject, driver: str) -> bool:
    """Return whether a network has the IPAM driver of this name."""
    return find_str(find_object(document, "IPAM") or {}, "Driver") == driver


def _of_networks(configured: tuple[JsonObject, ...]) -> Iterator[str | None]:
    for pool in configured:
        yield find_str(pool, "Gateway")
        auxiliary = find_object(pool, "AuxiliaryAddresses") or {}
        yield from (find_str(auxiliary, name) for name in auxiliary)


def _of_endpoints(document: JsonObject) -> Iterator[str | None]:
    containers = get_object(document, "Containers")
    for key in containers:
        endpoint = get_object(containers, key)
        yield from (find_str(endpoint, family) for family in ("IPv4Address", "IPv6Address"))
