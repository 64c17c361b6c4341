# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The status, and the pools and addresses of the IPAM driver, as documents; and what several documents have.

Documents with an entry for each endpoint are rendered in slices of the event loop: a thread would compete with it for
the interpreter, at each of its turns.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cni_bridge_spec import JsonObject, JsonValue, get_objects, get_str, render_json
from cni_bridge_state import AddressRecord, EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories
from cni_invoker.advanced import find_running
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link.endpoint_replies import known_addresses
from cnm_bridge.driver.endpoints.after_join import Unpublished
from cnm_bridge.driver.ipam.releases import Releases
from cnm_bridge.driver.ipam.unclaimed_addresses import UnclaimedAddresses
from cnm_bridge.driver.networks.lists import count_outdated
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.http import AdminError, ErrorKind
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling import TimeSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class IpamDocuments:
    """Describes pools and addresses; releases addresses that may be another engine's."""

    store: Store
    releases: Releases
    unclaimed: UnclaimedAddresses
    kernel: Kernel

    def describe_pools(self) -> list[JsonValue]:
        """Return the pools, as `spec/admin/status.json` has them."""
        return [
            {
                "id": pool.id,
                "section": pool.section,
                "subnet": str(pool.subnet),
                "part": None if pool.sub_pool is None else str(pool.sub_pool),
                "gateway": None if pool.gateway is None else str(pool.gateway),
                "addresses": len(self.store.ipam.in_pool(pool.id)),
            }
            for pool in self.store.ipam.pools.all()
        ]

    def describe_pending(self) -> list[JsonValue]:
        """Return the releases that have failed, as `spec/admin/status.json` has them."""
        found: list[JsonValue] = []
        for record_id, pending in self.releases.all.items():
            record = self.store.ipam.find_address(record_id)
            if pending.attempts and record is not None:
                shown = None if record.address is None else str(record.address)
                facts = {"section": record.section, "address": shown, "attempts": pending.attempts}
                found.append({"id": record_id, **facts, "error": pending.error})
        return found

    async def render_list(self, _: Mapping[str, str]) -> bytes:
        """Return all addresses as JSON (`spec/admin/addresses.json`)."""
        pools: JsonObject = {"pools": self.describe_pools()}
        return await with_many(pools, "addresses", map(_describe, self.store.ipam.addresses()))

    def unclaimed_addresses(self) -> list[JsonObject]:
        """Return the addresses that may be another engine's, as `spec/admin/cleanup.json` has them."""
        return [
            {
                "id": record.id,
                "network": record.section,
                "what": f"address {record.address} of pool {record.pool}",
                "modifiedAt": record.created_at,
            }
            for record in self.unclaimed.perhaps_foreign
        ]

    async def release(self, address_id: str) -> bool:
        """Release one of `unclaimed_addresses`; return whether there is one with this ID.

        Raises:
            Refused: A container has the address.
            KernelError: Whether it is in use cannot be determined.
        """
        record = next((record for record in self.unclaimed.perhaps_foreign if record.id == address_id), None)
        if record is None:
            return False
        used = (await self.kernel.look_into_sandboxes()).addresses
        if record.address is not None and str(record.address.ip) in used:
            raise Refused(f"{record.address} is in use: a container has it; nothing has been changed")
        await self.releases.release_all([record])
        self.unclaimed.forget(record)
        return True


def _describe(record: AddressRecord) -> JsonObject:
    plugins = () if record.reservation is None else get_objects(record.reservation.configuration, "plugins")
    return {
        "id": record.id,
        "pool": record.pool,
        "section": record.section,
        "phase": record.phase.value,
        "use": record.use.value,
        "address": None if record.address is None else str(record.address),
        "name": record.name,
        "plugin": next((get_str(plugin, "type") for plugin in plugins), None),
        "createdAt": record.created_at,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Builds the status document."""

    store: Store
    teardowns: TeardownQueue
    reconcile: Reconciler
    unpublished: Unpublished
    dhcp: LeaseKeeper
    directories: ConfigurationDirectories
    running_dir: Path
    ipam: IpamDocuments

    def _list_running(self) -> list[JsonValue]:
        """Return the plugins that run now; none if their directory is not readable."""
        with suppress(OSError):
            return [
                {"plugin": one.plugin, "verb": one.verb, "containerId": one.container_id, "ageS": round(one.age_s, 1)}
                for one in find_running(self.running_dir)
            ]
        return []

    async def render(self, _: Mapping[str, str]) -> bytes:
        """Return the document as JSON."""
        document: JsonObject = {
            "runningPlugins": await asyncio.to_thread(self._list_running),
            "engine": {
                "isUp": self.reconcile.engine_is_up,
                "identity": self.store.engine_identity(),
                "rounds": self.reconcile.rounds,
            },
            "networks": await describe_networks(self.store, self.directories),
            "lists": [*(await asyncio.to_thread(self.directories.index)).names],
            "pendingTeardowns": describe_pending(self.teardowns),
            "untriedTeardowns": [*sorted(self.teardowns.untried)],
            "dhcp": [
                {
                    "socket": str(socket),
                    "error": state.error,
                    "lost": [{"endpointId": one, "error": error} for one, error in state.lost.items()],
                }
                for socket, state in self.dhcp.states.items()
            ],
            "pools": self.ipam.describe_pools(),
            "pendingReleases": self.ipam.describe_pending(),
        }
        endpoints = (describe_endpoint(Endpoint(record), self.unpublished) for record in self.store.endpoints())
        return await with_many(document, "endpoints", endpoints)


async def describe_networks(store: Store, directories: ConfigurationDirectories) -> list[JsonValue]:
    """Return the networks as several documents have them."""
    counts = await count_outdated(store, directories)
    return [
        {
            "id": network.id,
            "name": network.name,
            "configuration": network.configuration or network.name,
            "internal": network.internal,
            "outdatedEndpoints": counts.get(network.id, 0),
        }
        for network in store.networks()
    ]


def get_endpoint(store: Store, parameters: Mapping[str, str]) -> EndpointRecord:
    """Return the record of the endpoint with the ID `id`.

    Raises:
        AdminError: There is none.
    """
    record = store.find_endpoint(EndpointId(parameters["id"]))
    if record is None:
        raise AdminError(ErrorKind.NOT_FOUND, f"there is no endpoint {parameters['id']}; its ID is needed in full")
    return record


def describe_endpoint(endpoint: Endpoint, unpublished: Unpublished) -> JsonObject:
    """Return an endpoint as several documents have it."""
    record = endpoint.record
    return {
        "id": record.id,
        "networkId": record.network_id,
        "phase": record.phase.value,
        "mode": record.attachment.mode.shown,
        "configuration": record.attachment.network or None,
        "addresses": [str(address) for address in known_addresses(endpoint)],
        "notPublished": unpublished.reasons.get(record.id) if record.phase is Phase.JOINED else None,
        "sandboxKey": record.sandbox_key,
    }


def describe_pending(teardowns: TeardownQueue) -> list[JsonValue]:
    """Return the teardowns that have failed; the others' first attempt is running, as after each DeleteEndpoint."""
    return [
        {"endpointId": endpoint_id, "attempts": pending.attempts, "error": pending.error}
        for endpoint_id, pending in teardowns.all.items()
        if pending.attempts
    ]


async def with_many(document: JsonObject, key: str, entries: Iterable[JsonObject]) -> bytes:
    """Return a document as JSON, with one further key whose value is a list of many entries."""
    time_slice = TimeSlice()
    rendered: list[bytes] = []
    for entry in entries:
        rendered.append(render_json(entry))
        await time_slice.pause()
    return b"".join((render_json(document)[:-1], f',"{key}":['.encode(), b",".join(rendered), b"]}"))
