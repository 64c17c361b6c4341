# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's status: networks and endpoints, pending teardowns, orphans; see `spec/admin/status.json`."""

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.planning.link.endpoint_replies import known_addresses
from cnm_bridge.driver.endpoints.unpublished import Unpublished
from cnm_bridge.driver.networks.configuration_watch import ConfigurationWatch
from cnm_bridge.driver.recovery.dhcp_leases import DhcpLeases
from cnm_bridge.driver.recovery.orphans.orphan_audit import OrphanAudit
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.document import describe_networks, describe_pending, with_many

__all__ = ["Status"]


class Status:
    """Builds the status document.

    Args:
        store: The networks and endpoints.
        teardowns: The pending teardowns.
        reconcile: Knows whether the engine is up.
        audit: Finds orphans.
        unpublished: Knows the endpoints whose ports are not published.
        dhcp: Knows the CNI DHCP daemons, and the endpoints that have lost their lease.
        watch: Knows the endpoints whose list has changed since.
    """

    def __init__(
        self,
        *,
        store: Store,
        teardowns: TeardownQueue,
        reconcile: Reconciler,
        audit: OrphanAudit,
        unpublished: Unpublished,
        dhcp: DhcpLeases,
        watch: ConfigurationWatch,
    ) -> None:
        self._store = store
        self._watch = watch
        self._teardowns = teardowns
        self._reconcile = reconcile
        self._audit = audit
        self._unpublished = unpublished
        self._dhcp = dhcp

    async def render(self) -> bytes:
        """Return the document as JSON."""
        document: JsonObject = {
            "engine": {
                "isUp": self._reconcile.engine_is_up,
                "identity": self._store.engine_identity(),
                "rounds": self._reconcile.rounds,
            },
            "networks": await describe_networks(self._store, self._watch),
            "pendingTeardowns": describe_pending(self._teardowns),
            "untriedTeardowns": [*sorted(self._teardowns.untried)],
            "orphans": [
                {"network": orphan.network, "containerId": orphan.container_id, "what": orphan.what}
                for orphan in self._audit.orphans
            ],
            "dhcp": [
                {
                    "socket": str(socket),
                    "error": state.error,
                    "lost": [{"endpointId": one, "error": error} for one, error in state.lost.items()],
                }
                for socket, state in self._dhcp.states.items()
            ],
        }
        return await with_many(document, "endpoints", map(self._endpoint, self._store.endpoints()))

    def _endpoint(self, record: EndpointRecord) -> JsonObject:
        return {
            "id": record.id,
            "networkId": record.network_id,
            "phase": record.phase.value,
            "mode": record.attachment.mode.value,
            "configuration": record.attachment.network or None,
            "addresses": [str(address) for address in known_addresses(Endpoint(record))],
            "sandboxKey": record.sandbox_key,
            "notPublished": self._unpublished.reasons.get(record.id) if record.phase is Phase.JOINED else None,
        }
