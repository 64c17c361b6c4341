# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Settings, CNI configurations, and records for tests to store."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state import (
    AddressId,
    AddressPhase,
    AddressPoolRecord,
    AddressRecord,
    AddressUse,
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    PoolId,
    RequestedInterface,
    ReservationRecord,
)
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.settings import Settings

NETWORK = NetworkId("a" * 64)
_PHASES_UNTIL_JOINED = (Phase.PENDING, Phase.READY, Phase.JOINED)


def settings_in(directory: Path, **changes: object) -> Settings:
    """Return settings that keep everything in a directory, where no engine listens."""
    engine = f"unix://{directory}/none"
    made = Settings(state_dir=directory / "state", run_dir=directory / "run", docker_host=engine)
    return replace(made, **changes)  # type: ignore[arg-type]


def address_pool(pool_id: str = "lan,10.1.2.0/24,,00", **changes: object) -> AddressPoolRecord:
    """Return a pool of the IPAM section `lan`."""
    made = AddressPoolRecord(
        id=PoolId(pool_id),
        section="lan",
        subnet=IPv4Network("10.1.2.0/24"),
        sub_pool=None,
        gateway=None,
        engine=None,
        created_at=0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def address_record(address_id: str = "6" * 64, pool: str = "pool", **changes: object) -> AddressRecord:
    """Return an address of such a pool that is being requested."""
    made = AddressRecord(
        id=AddressId(address_id),
        pool=PoolId(pool),
        section="lan",
        phase=AddressPhase.PENDING,
        use=AddressUse.ANY,
        address=None,
        name="web",
        reservation=ReservationRecord(netns="/run/netns/1", configuration={}, args=(), capability_args={}),
        created_at=0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def list_of(*plugins: JsonValue, name: str = "blue", version: str = "1.0.0") -> NetworkConfigurationList:
    """Return a CNI configuration of these plugins."""
    return NetworkConfigurationList.from_document({"cniVersion": version, "name": name, "plugins": [*plugins]})


def network_record(network_id: str = NETWORK, **changes: object) -> NetworkRecord:
    """Return a Docker network `blue` on the CNI network `lan`."""
    made = NetworkRecord(id=NetworkId(network_id), configuration="lan", name="blue", internal=False, options={})
    return replace(made, **changes)  # type: ignore[arg-type]


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
