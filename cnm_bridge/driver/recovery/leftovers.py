# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes what is left of endpoints whose record was lost: in each round, and at once for a refused new endpoint."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import AttachmentId, EndpointId, NetworkId, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.naming import alternative_name, attachments_of_others, pin_path, staging_path
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.recovery.leftover_search import Leftovers, LeftoverSearch
from cnm_bridge.driver.recovery.lost_records import LostRecords
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

log = structlog.get_logger()

_UNKNOWN: Final = NetworkId("0" * 64)
"""Stored as the Docker network of such an endpoint. The teardown does not use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveLeftovers:
    """Removes leftovers: staging namespaces, links, and the plugins' artifacts.

    Attributes:
        run_dir: The parent directory of the staging namespaces.
        search: Finds leftovers, and takes the ID of what stays because there is no list whose plugins could remove it.
    """

    store: Store
    networks: NetworkService
    kernel: Kernel
    teardowns: TeardownQueue
    locks: KeyedLocks[EndpointId]
    run_dir: Path
    lost_records: LostRecords
    search: LeftoverSearch

    async def __call__(self, leftovers: Leftovers) -> None:
        """Remove the leftovers of an endpoint, unless its link may be in a sandbox.

        If the artifacts identify the CNI network, the endpoint gets a new record and is torn down: its plugins find
        what they made by its ID and addresses. Errors are logged; the next round finds the leftovers again.
        """
        attachment_id = leftovers.attachment_id
        endpoint_id = EndpointId(attachment_id)
        try:
            async with self.locks.hold(endpoint_id):
                if self.store.find_attachment(attachment_id) is not None or await self._is_in_use(attachment_id):
                    return
                if attachment_id in attachments_of_others(await self.kernel.mounted_namespaces(), self.run_dir):
                    return
                log.warning(
                    "endpoint.leftovers",
                    endpoint_id=endpoint_id,
                    artifacts=[artifact.what for artifact in leftovers.artifacts],
                )
                configuration = await self._find_configuration(leftovers)
                if configuration is None:
                    await self._remove(leftovers)
                    self.search.disown(attachment_id)
                    return
                known = tuple(artifact.address for artifact in leftovers.artifacts if artifact.address is not None)
                record = await self.lost_records.make(
                    endpoint_id,
                    network_id=_UNKNOWN,
                    phase=Phase.DELETING,
                    internal=False,
                    configuration=configuration,
                    addresses=known,
                )
                await self.store.put_found_endpoint(record)
            self.teardowns.add(endpoint_id)
        except (KernelError, StateError) as exc:
            log.warning("endpoint.leftovers_kept", endpoint_id=endpoint_id, error=str(exc))
        except Exception:  # a bug is logged, and must not keep the round from handling the other endpoints
            log.exception("endpoint.leftovers_kept", endpoint_id=endpoint_id)

    async def on_network(self, network: str, until: float) -> None:
        """Begin to remove endpoints on a CNI network whose records are lost, until a moment in event loop time.

        The engine is not asked, because it answers no question while dockerd boots: without its record an endpoint
        cannot be joined. What a DEL has left, such as a rule, is no endpoint and stays until the next round. The caller
        must not cancel this: a record that is stored without a teardown would hold its address until the next start.
        """
        try:
            found = await self.search.find(self.networks.bound_names(), self.networks.bound_documents())
        except KernelError as exc:  # the plugin's own error is reported instead
            log.warning("contention.kernel_unread", error=str(exc))
            return
        for leftovers in found.values():
            is_endpoint = leftovers.is_mounted or leftovers.link is not None
            is_here = any(artifact.network == network for artifact in leftovers.artifacts)
            if is_endpoint and is_here and asyncio.get_running_loop().time() < until:
                await self(leftovers)

    async def _is_in_use(self, attachment_id: AttachmentId) -> bool:
        """Return whether the link is in a sandbox, or may be in one that cannot be read now."""
        seen = await self.kernel.look_into_sandboxes()
        return bool(seen.unread) or alternative_name(attachment_id) in seen.links

    async def _find_configuration(self, leftovers: Leftovers) -> NetworkConfigurationList | None:
        for name in dict.fromkeys(artifact.network for artifact in leftovers.artifacts):
            try:
                return await self.networks.find_configuration(name)
            except CniError as exc:
                log.warning("endpoint.leftovers_unknown", attachment_id=leftovers.attachment_id, error=str(exc))
        return None

    async def _remove(self, leftovers: Leftovers) -> None:
        if leftovers.link is not None:
            await self.kernel.delete_host_link(leftovers.link, alternative_name(leftovers.attachment_id))
        if leftovers.is_mounted:
            attachment_id = leftovers.attachment_id
            await self.kernel.remove_staging(
                staging_path(self.run_dir, attachment_id), pin_path(self.run_dir, attachment_id)
            )
