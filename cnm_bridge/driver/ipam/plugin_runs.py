# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs IPAM plugins for addresses that no link has yet.

CNI wants a network namespace for ADD and DEL (SPEC §2, CNI_NETNS), and the plugins' library checks that it is not the
host's. There is no container yet, so all of them receive the same one, which has nothing but `lo`. It exists as long as
there are reservations.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cni_bridge_state import AddressRecord, ReservationRecord
from cni_invoker import Attachment, NetworkConfigurationList, Result, Runtime
from cnm_bridge.system.kernel import Kernel

_IFNAME: Final = "eth0"
"""CNI_IFNAME of all reservations: each has a container ID of its own."""


def namespace_path(run_dir: Path) -> Path:
    """Return the path of the namespace that IPAM plugins receive."""
    return run_dir / "ipam" / "netns"


class PluginRuns:
    """Runs ADD and DEL of IPAM plugins."""

    def __init__(self, runtime: Runtime, kernel: Kernel, run_dir: Path) -> None:
        self._runtime = runtime
        self._kernel = kernel
        self.netns = namespace_path(run_dir)
        self._lock = asyncio.Lock()
        self._running = 0

    async def add(self, record: AddressRecord, reservation: ReservationRecord) -> Result:
        """Run ADD.

        Raises:
            CniError: The plugin failed; it may have reserved the address all the same.
            KernelError: There is no namespace; the plugin has not run.
        """
        async with self._namespace():
            return await self._runtime.add(_network(reservation), _attachment(record, reservation))

    async def delete(self, record: AddressRecord, reservation: ReservationRecord) -> None:
        """Run DEL; it may be repeated.

        Raises:
            CniError: The plugin failed; the address may still be reserved.
            KernelError: There is no namespace; the plugin has not run.
        """
        network = _network(reservation)
        stored = reservation.result
        result = None if stored is None else Result.from_document(stored, cni_version=network.cni_version)
        added = 0 if result is None else 1
        async with self._namespace():
            await self._runtime.delete(network, _attachment(record, reservation), result, added_plugins=added)

    async def tidy(self, is_unused: Callable[[], bool]) -> None:
        """Remove the namespace if there is no reservation, and no plugin is running.

        Raises:
            KernelError: It cannot be removed.
        """
        async with self._lock:
            if not self._running and is_unused() and self._kernel.is_namespace(self.netns):
                await self._kernel.remove_staging(self.netns)

    @asynccontextmanager
    async def _namespace(self) -> AsyncIterator[None]:
        """Keep the namespace while the block runs; make it if it does not exist."""
        self._running += 1
        try:
            async with self._lock:
                if not self._kernel.is_namespace(self.netns):
                    await self._kernel.create_staging(self.netns)
            yield
        finally:
            self._running -= 1


def _network(reservation: ReservationRecord) -> NetworkConfigurationList:
    return NetworkConfigurationList.from_document(reservation.configuration)


def _attachment(record: AddressRecord, reservation: ReservationRecord) -> Attachment:
    """Return the attachment that an address is to its IPAM plugin."""
    return Attachment(
        container_id=record.id,
        ifname=_IFNAME,
        netns=reservation.netns,
        args=reservation.args,
        capability_args=reservation.capability_args,
    )
