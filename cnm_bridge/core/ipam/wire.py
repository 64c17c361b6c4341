# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""IpamDriver requests and replies as records; pure.

Source: moby `daemon/libnetwork/ipams/remote/api/api.go`, `daemon/libnetwork/network.go` (ipamAllocateVersion). The
caller has validated a body with its schema in `spec/ipam`; the functions here check only the syntax of addresses, and
raise `BadRequest`.
"""

from collections.abc import Mapping
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
from typing import Final

from cni_bridge_spec import JsonObject, find_object, find_str, get_bool, get_str
from cni_bridge_state import AddressPoolRecord, PoolId
from cnm_bridge.core.errors import BadRequest, Refused
from cnm_bridge.core.wire import GLOBAL_SPACE

_GATEWAY: Final = "com.docker.network.gateway"
_TYPE: Final = "RequestAddressType"
_NAME: Final = "com.docker.network.endpoint.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPool:
    """A RequestPool request. It names neither the network nor its driver.

    Attributes:
        subnet: The subnet that the user gave; None to let the driver choose.
        sub_pool: The part of it that addresses shall be chosen from (`--ip-range`).
        options: The user's `--ipam-opt` options.
    """

    subnet: IPv4Network | IPv6Network | None
    sub_pool: IPv4Network | IPv6Network | None
    options: Mapping[str, str]
    is_ipv6: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAddress:
    """A RequestAddress request. It names neither the endpoint nor, before Engine 29, the container.

    Attributes:
        address: The address that the user gave; None to let the driver choose.
        name: The name of the container, None if the engine does not send it.
    """

    pool: PoolId
    address: IPv4Address | IPv6Address | None
    is_gateway: bool = False
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAddress:
    """A ReleaseAddress request; its pool is empty for an address that a network driver chose."""

    pool: PoolId
    address: IPv4Address | IPv6Address


def parse_request_pool(body: JsonObject) -> RequestPool:
    """Return a RequestPool request. An unspecified address, such as `0.0.0.0/0`, stands for no subnet.

    Raises:
        BadRequest: A subnet is invalid.
        Refused: It is for a network of a swarm. Its manager assigns addresses for all nodes, and only those of this
            host's containers can be compared with Docker: the others would be taken for unused, and assigned again.
    """
    if find_str(body, "AddressSpace") == GLOBAL_SPACE:
        raise Refused(
            "cni-bridge assigns no addresses to networks of a swarm, because a host does not know which ones other "
            "nodes use; make the network without --ipam-driver"
        )
    options = find_object(body, "Options") or {}
    subnet = _parse_subnet(body, "Pool")
    return RequestPool(
        subnet=None if subnet is None or subnet.network_address.is_unspecified else subnet,
        sub_pool=_parse_subnet(body, "SubPool"),
        options={key: get_str(options, key) for key in options},
        is_ipv6=get_bool(body, "V6"),
    )


def parse_release_pool(body: JsonObject) -> PoolId:
    """Return the pool of a ReleasePool request."""
    return PoolId(get_str(body, "PoolID"))


def parse_request_address(body: JsonObject) -> RequestAddress:
    """Return a RequestAddress request."""
    options = find_object(body, "Options") or {}
    text = find_str(body, "Address")
    return RequestAddress(
        pool=PoolId(get_str(body, "PoolID")),
        address=_parse_address(text) if text else None,
        is_gateway=find_str(options, _TYPE) == _GATEWAY,
        name=find_str(options, _NAME) or None,
    )


def parse_release_address(body: JsonObject) -> ReleaseAddress:
    """Return a ReleaseAddress request."""
    return ReleaseAddress(pool=PoolId(get_str(body, "PoolID")), address=_parse_address(get_str(body, "Address")))


def render_pool_reply(pool: AddressPoolRecord) -> JsonObject:
    """Return the reply to RequestPool, e.g. `{"PoolID": "lan,10.1.2.0/24,,5f", "Pool": "10.1.2.0/24", "Data": {}}`.

    Docker does not request the gateway, unless the user gave another.
    """
    data = {} if pool.gateway is None else {_GATEWAY: f"{pool.gateway}/{pool.subnet.prefixlen}"}
    return {"PoolID": pool.id, "Pool": str(pool.subnet), "Data": data}


def render_address_reply(address: IPv4Interface | IPv6Interface) -> JsonObject:
    """Return the reply to RequestAddress, e.g. `{"Address": "10.1.2.3/24", "Data": {}}`."""
    return {"Address": str(address), "Data": {}}


def _parse_subnet(body: JsonObject, key: str) -> IPv4Network | IPv6Network | None:
    text = find_str(body, key)
    try:
        return ip_network(text, strict=False) if text else None
    except ValueError as exc:
        raise BadRequest(f"RequestPool: {key}: {exc}") from exc


def _parse_address(text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text.partition("/")[0])
    except ValueError as exc:
        raise BadRequest(f"Address: {exc}") from exc
