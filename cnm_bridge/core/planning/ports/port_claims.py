# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An index of the host's ports that endpoints have claimed; pure.

Ten thousand ports of one container are not unusual (SIP, TURN), so no lookup iterates over all of them.
"""

from collections.abc import Collection, Iterator

from cni_bridge_state import EndpointId, PortRequest
from cnm_bridge.core.planning.ports.port_mapping import PROTOCOLS, PortMapping


class PortClaims:
    """The ports of endpoints. Two endpoints may claim the same port; the caller decides whether that is allowed."""

    def __init__(self) -> None:
        self._by_endpoint: dict[EndpointId, dict[PortMapping, None]] = {}
        self._by_port: dict[tuple[str, int], list[tuple[EndpointId, PortMapping]]] = {}

    def of(self, endpoint_id: EndpointId) -> Collection[PortMapping]:
        """Return the ports of an endpoint, in the order in which they were claimed."""
        return self._by_endpoint.get(endpoint_id, {}).keys()

    def add(self, endpoint_id: EndpointId, mapping: PortMapping) -> None:
        """Assign a port to an endpoint, which may have it already."""
        own = self._by_endpoint.setdefault(endpoint_id, {})
        if mapping not in own:
            own[mapping] = None
            self._by_port.setdefault((mapping.protocol, mapping.host_port), []).append((endpoint_id, mapping))

    def discard(self, endpoint_id: EndpointId, mapping: PortMapping) -> None:
        """Remove a port of an endpoint, if it has that port."""
        own = self._by_endpoint.get(endpoint_id, {})
        if mapping in own:
            del own[mapping]
            self._leave(endpoint_id, mapping)
        if not own:
            self._by_endpoint.pop(endpoint_id, None)

    def release(self, endpoint_id: EndpointId) -> None:
        """Remove all ports of an endpoint."""
        for mapping in self._by_endpoint.pop(endpoint_id, {}):
            self._leave(endpoint_id, mapping)

    def find_overlapping(self, mapping: PortMapping) -> Iterator[EndpointId]:
        """Yield the endpoints with a port that could receive the same packets as `mapping`."""
        for endpoint_id, claimed in self._by_port.get((mapping.protocol, mapping.host_port), ()):
            if mapping.overlaps(claimed):
                yield endpoint_id

    def find_serving(self, request: PortRequest, port: int) -> Iterator[EndpointId]:
        """Yield the endpoints that have `port`, one of the range of a request, on an address of the request."""
        protocol = PROTOCOLS.get(request.protocol)
        for endpoint_id, claimed in self._by_port.get((protocol, port), ()) if protocol else ():
            if claimed.may_serve(request):
                yield endpoint_id

    def _leave(self, endpoint_id: EndpointId, mapping: PortMapping) -> None:
        place = (mapping.protocol, mapping.host_port)
        claims = self._by_port[place]
        if len(claims) == 1:
            del self._by_port[place]
        else:
            claims.remove((endpoint_id, mapping))
