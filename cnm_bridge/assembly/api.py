# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.server.api`."""

from dataclasses import dataclass

from cnm_bridge.assembly.endpoints import EndpointRoom
from cnm_bridge.assembly.networks import NetworkRoom
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.server.api import CallsUnderWay, Method, network_driver
from cnm_bridge.server.serving import PendingConnections


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoom:
    """The room `api`.

    Attributes:
        methods: The calls that the daemon answers.
        calls: Docker's running calls.
        connections: The connections to the plugin socket.
    """

    methods: tuple[Method, ...]
    calls: CallsUnderWay
    connections: PendingConnections


def make_api(
    resources: Resources,
    *,
    calls: CallsUnderWay,
    networks: NetworkRoom,
    endpoints: EndpointRoom,
) -> ApiRoom:
    """Return the objects of the room."""
    return ApiRoom(
        methods=network_driver(
            networks.service, endpoints.service, endpoints.joined, resources.kernel, resources.release
        ),
        calls=calls,
        connections=PendingConnections(on_hidden=resources.kernel.distrust_processes),
    )
