# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Checks that every endpoint in use has a record: otherwise nothing may be treated as unowned."""

from pathlib import Path

from cnm_bridge.engine import Engine
from cnm_bridge.errors import EngineUnavailable
from cnm_bridge.kernel import Kernel, KernelError
from cnm_bridge.model.naming import attachment_of, staging_directory
from state import Store

__all__ = ["InventoryCheck"]


class InventoryCheck:
    """Compares the endpoints of the engine and the kernel with the records.

    Args:
        store: The records.
        engine: Docker's own lists.
        kernel: The links in sandboxes.
        driver: The name of this driver in Docker.
        run_dir: Below it are the staging namespaces.
    """

    def __init__(self, *, store: Store, engine: Engine, kernel: Kernel, driver: str, run_dir: Path) -> None:
        self._store = store
        self._engine = engine
        self._kernel = kernel
        self._driver = driver
        self._staging = staging_directory(run_dir)

    async def find_gap(self) -> str | None:
        """Return why it is not certain that each endpoint in use has a record, in words; None if it is.

        Raises:
            StateError: The records cannot be read.
        """
        try:
            return await self._find_doubt()
        except (EngineUnavailable, KernelError) as exc:
            return str(exc)

    async def _find_doubt(self) -> str | None:
        identity = await self._engine.identity()
        if identity != self._store.engine_identity():
            return f"the engine {identity} has not been seen to use this driver"
        stored = {record.id for record in self._store.networks()}
        there: set[str] = set()
        for network_id in sorted({*stored, *await self._engine.network_ids(self._driver)}):
            network = await self._engine.find_network(network_id)
            if network is None:
                continue
            if network.driver != self._driver:  # its list of networks is not all of ours
                return f"network {network_id} is of driver {network.driver}, and this one is {self._driver}"
            there.update(network.endpoints)
        # not by processes: those of an engine that runs in a container, with a cni-bridge of its own, would be seen too
        mounted = await self._kernel.altnames_mounted(self._staging)
        attached = {attachment_id for name in mounted if (attachment_id := attachment_of(name)) is not None}
        # read after what is looked at: what is made meanwhile is in both
        records = self._store.endpoints()
        unknown = there - {record.id for record in records}
        unknown |= attached - {record.attachment_id for record in records}
        return f"endpoint {min(unknown)} has no record" if unknown else None
