# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Checks that every endpoint in use has a record.

If that is not certain, the plugins' GC does not run, because it would destroy the endpoints without one.
"""

from pathlib import Path

from cni_bridge_state.store import Store
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.naming import attachment_of, attachments_of_others
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

__all__ = ["InventoryCheck"]


class InventoryCheck:
    """Compares the endpoints of the engine and the kernel with the records.

    Args:
        store: The records.
        engine: Lists the networks and endpoints of Docker.
        kernel: Lists the links in sandboxes.
        driver: This driver's name in Docker.
        run_dir: The parent directory of the staging namespaces.
    """

    def __init__(self, *, store: Store, engine: Engine, kernel: Kernel, driver: str, run_dir: Path) -> None:
        self._store = store
        self._engine = engine
        self._kernel = kernel
        self._driver = driver
        self._run_dir = run_dir

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
        identity = await self._engine.identity()
        if identity != self._store.engine_identity():
            return f"the engine {identity} has not been seen to use this driver"
        stored = {record.id for record in self._store.networks()}
        in_engine: set[str] = set()
        for network_id in sorted({*stored, *await self._engine.network_ids(self._driver)}):
            network = await self._engine.find_network(network_id)
            if network is None:
                continue
            if network.driver != self._driver:  # so `network_ids(self._driver)` was incomplete
                return f"network {network_id} is of driver {network.driver}, and this one is {self._driver}"
            in_engine.update(network.endpoints)
        # Not by processes: they may belong to an engine in a container, which has its own cni-bridge.
        mounted = await self._kernel.altnames_mounted(self._run_dir)
        attached = {attachment_id for name in mounted if (attachment_id := attachment_of(name)) is not None}
        others = attachments_of_others(await self._kernel.mounted_namespaces(), self._run_dir)
        # Read last, so that an endpoint created meanwhile has its record here.
        records = self._store.endpoints()
        unknown = in_engine - {record.id for record in records}
        known = {record.attachment.id for record in records}
        if others - known:
            return f"endpoint {min(others - known)} belongs to another cni-bridge on this host"
        unknown |= attached - known
        return f"endpoint {min(unknown)} has no record" if unknown else None
