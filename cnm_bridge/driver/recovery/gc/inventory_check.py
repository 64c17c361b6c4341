# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Checks that every endpoint in use has a record.

If that is not certain, the plugins' GC does not run, because it would destroy the endpoints without one.
"""

from dataclasses import dataclass
from pathlib import Path

from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.naming import attachment_of, attachments_of_others
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

__all__ = ["InventoryCheck"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryCheck:
    """Compares the endpoints of the engine and the kernel with the records.

    Attributes:
        store: The records.
        engine: Lists the networks and endpoints of Docker.
        kernel: Lists the links in sandboxes.
        driver: This driver's name in Docker.
        run_dir: The parent directory of the staging namespaces.
    """

    store: Store
    engine: Engine
    kernel: Kernel
    driver: str
    run_dir: Path

    async def find_gap(self) -> str | None:
        """Return None if every endpoint in use has a record, else the reason why that is not certain.

        Raises:
            StateError: The records cannot be read.
        """
        try:
            return await self._find_gap()
        except (EngineUnavailable, KernelError) as exc:
            return str(exc)

    async def _find_gap(self) -> str | None:
        identity = await self.engine.identity()
        if identity != self.store.engine_identity():
            return f"the engine {identity} has not been seen to use this driver"
        stored = {record.id for record in self.store.networks()}
        in_engine: set[str] = set()
        for network_id in sorted({*stored, *await self.engine.network_ids(self.driver)}):
            network = await self.engine.find_network(network_id)
            if network is None:
                continue
            if network.driver != self.driver:  # so `network_ids(self.driver)` was incomplete
                return f"network {network_id} is of driver {network.driver}, and this one is {self.driver}"
            in_engine.update(network.endpoints)
        # Not by processes: they may belong to an engine in a container, which has its own cni-bridge.
        mounted = await self.kernel.altnames_mounted(self.run_dir)
        attached = {attachment_id for name in mounted if (attachment_id := attachment_of(name)) is not None}
        others = attachments_of_others(await self.kernel.mounted_namespaces(), self.run_dir)
        # Read last, so that an endpoint created meanwhile has its record here.
        records = self.store.endpoints()
        unknown = in_engine - {record.id for record in records}
        known = {record.attachment.id for record in records}
        if others - known:
            return f"endpoint {min(others - known)} belongs to another cni-bridge on this host"
        unknown |= attached - known
        return f"endpoint {min(unknown)} has no record" if unknown else None
