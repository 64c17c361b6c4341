# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's NetworkDriver requests and replies as records; pure. The wire's spelling of keys stays in this room."""

from cnm_bridge.core.wire.replies import (
    ChosenInterface,
    Joined,
    RouteType,
    StaticRoute,
    render_interface,
    render_joined,
)
from cnm_bridge.core.wire.requests import (
    OWN_SPACES,
    CreateEndpoint,
    CreateNetwork,
    EndpointReference,
    Join,
    NetworkReference,
    ProgramExternalConnectivity,
    parse_create_endpoint,
    parse_create_network,
    parse_endpoint_reference,
    parse_external_connectivity,
    parse_join,
    parse_network_reference,
)

__all__ = [
    "OWN_SPACES",
    "ChosenInterface",
    "CreateEndpoint",
    "CreateNetwork",
    "EndpointReference",
    "Join",
    "Joined",
    "NetworkReference",
    "ProgramExternalConnectivity",
    "RouteType",
    "StaticRoute",
    "parse_create_endpoint",
    "parse_create_network",
    "parse_endpoint_reference",
    "parse_external_connectivity",
    "parse_join",
    "parse_network_reference",
    "render_interface",
    "render_joined",
]
