# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The pools and addresses that Docker has requested from this driver."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, get_objects, get_str
from cni_bridge_state import AddressRecord, ReservationRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.errors import Refused
from cnm_bridge.driver.ipam.lost_addresses import UnclaimedAddresses
from cnm_bridge.driver.ipam.releases import Releases
from cnm_bridge.server.admin.document import with_many
from cnm_bridge.system.kernel import Kernel

_SHORT: Final = 12


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
            for pool in self.store.ipam.pools()
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

    def uncertain(self) -> list[JsonObject]:
        """Return the addresses that may be another engine's, as `spec/admin/leftovers.json` has them."""
        return [
            {
                "id": one.id[:_SHORT],
                "network": one.section,
                "containerId": one.id,
                "what": f"address {one.address} of pool {one.pool}",
                "modifiedAt": one.created_at,
            }
            for one in self.unclaimed.uncertain
        ]

    async def release(self, short_id: str) -> bool:
        """Release one of `uncertain`; return whether there is one with this ID.

        Raises:
            Refused: A container has the address.
            KernelError: Whether it is in use cannot be determined.
        """
        for one in self.unclaimed.uncertain:
            if one.id[:_SHORT] == short_id:
                if (
                    one.address is not None
                    and str(one.address.ip) in (await self.kernel.look_into_sandboxes()).addresses
                ):
                    raise Refused(f"{one.address} is in use: a container has it; nothing has been changed")
                await self.releases.release_all([one])
                self.unclaimed.forget(one)
                return True
        return False


def _describe(record: AddressRecord) -> JsonObject:
    return {
        "id": record.id,
        "pool": record.pool,
        "section": record.section,
        "phase": record.phase.value,
        "use": record.use.value,
        "address": None if record.address is None else str(record.address),
        "name": record.name,
        "plugin": None if record.reservation is None else _plugin(record.reservation),
        "createdAt": record.created_at,
    }


def _plugin(reservation: ReservationRecord) -> str | None:
    """Return the type of the plugin that has reserved an address."""
    return next((get_str(one, "type") for one in get_objects(reservation.configuration, "plugins")), None)
