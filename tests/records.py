# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""CNI configurations, and records of endpoints for tests to store."""

from collections.abc import Sequence
from dataclasses import replace

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    Phase,
    RequestedInterface,
)
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList

__all__ = ["NETWORK", "endpoint", "list_of", "put"]

NETWORK = NetworkId("a" * 64)
_PHASES_UNTIL_JOINED = (Phase.PENDING, Phase.READY, Phase.JOINED)


def list_of(*plugins: JsonValue, name: str = "blue", version: str = "1.0.0") -> NetworkConfigurationList:
    """Return a CNI configuration of these plugins."""
    return NetworkConfigurationList.from_document({"cniVersion": version, "name": name, "plugins": [*plugins]})


def endpoint(
    endpoint_id: str,
    phase: Phase = Phase.JOINED,
    *,
    boot_id: str = "0c1f",
    network: str = "lan",
    ipam: JsonObject | None = None,
    plugins: Sequence[JsonObject] = (),
    args: tuple[tuple[str, str], ...] = (),
    capability_args: JsonObject | None = None,
) -> EndpointRecord:
    """Make the record of an endpoint on a CNI network, whose plugins are a bridge or those given."""
    plugins = plugins or [{"type": "bridge", "ipam": ipam or {"type": "host-local"}}]
    return EndpointRecord(
        id=EndpointId(endpoint_id),
        network_id=NETWORK,
        phase=phase,
        boot_id=boot_id,
        internal=False,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            id=AttachmentId(endpoint_id),
            ifname="eth0",
            netns=f"/run/cni-bridge/netns/{endpoint_id}",
            configuration={"cniVersion": "1.0.0", "name": network, "plugins": [*plugins]},
            cni_version="1.0.0",
            args=args,
            capability_args=capability_args or {},
        ),
    )


async def put(store: Store, record: EndpointRecord) -> None:
    """Store a record, and before it the phases that lead to its own."""
    for phase in _PHASES_UNTIL_JOINED[: _PHASES_UNTIL_JOINED.index(record.phase) + 1]:
        await store.put_endpoint(replace(record, phase=phase))
