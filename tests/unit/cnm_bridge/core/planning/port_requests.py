# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests for ports, and chosen ports, for tests."""

from ipaddress import ip_address

from cni_bridge_state import PortRequest
from cnm_bridge.core.planning.ports import PortMapping

TCP = 6


def request(
    first: int = 0, last: int = 0, *, port: int = 80, host_ip: str | None = None, protocol: int = TCP
) -> PortRequest:
    """Return the request for a port, or for one port of a range."""
    return PortRequest(
        protocol=protocol,
        container_port=port,
        host_ip=ip_address(host_ip) if host_ip else None,
        host_port=first,
        host_port_end=max(first, last),
    )


def mapping(host_port: int, *, port: int = 80, host_ip: str | None = None, protocol: str = "tcp") -> PortMapping:
    """Return a chosen port."""
    return PortMapping(
        protocol=protocol,
        host_ip=ip_address(host_ip) if host_ip else None,
        host_port=host_port,
        container_port=port,
    )
