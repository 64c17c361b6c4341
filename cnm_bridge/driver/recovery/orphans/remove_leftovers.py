# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes what is left of endpoints whose record was lost."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import AttachmentId, EndpointId, NetworkId, Phase, StateError
from cni_bridge_state.store import Store
from cni_invoker import CniError, NetworkConfigurationList
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.naming import alternative_name, attachments_of_others, pin_path, staging_path
from cnm_bridge.driver.attach.new_records import NewRecords
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.driver.recovery.orphans.orphan_audit import Leftovers
from cnm_bridge.driver.recovery.pinned_link import find_pinned_link
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.scheduling.keyed_locks import KeyedLocks

__all__ = ["RemoveLeftovers"]

log = structlog.get_logger()

_UNKNOWN: Final = NetworkId("0" * 64)
"""Stored as the Docker network of such an endpoint. The teardown does not use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveLeftovers:
    """Removes leftovers: staging namespaces, links, and the plugins' artifacts.

    Attributes:
        store: The records.
        networks: Finds the configuration of the artifacts' CNI network.
        kernel: Removes links and namespaces.
        teardowns: Tears down leftovers whose configuration is known.
        locks: The locks of endpoints.
        run_dir: The parent directory of the staging namespaces.
        new_records: Creates the record for a teardown.
    """

    store: Store
    networks: NetworkService
    kernel: Kernel
    teardowns: TeardownQueue
    locks: KeyedLocks[EndpointId]
    run_dir: Path
    new_records: NewRecords

    async def __call__(self, leftovers: Leftovers) -> None:
        """Remove the leftovers of an endpoint, unless its link is in a sandbox.

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
                    return
                pinned = await find_pinned_link(self.kernel, self.run_dir, attachment_id, mac=None)
                known = tuple(artifact.address for artifact in leftovers.artifacts if artifact.address is not None)
                record = self.new_records.rebuilt(
                    endpoint_id,
                    network_id=_UNKNOWN,
                    phase=Phase.DELETING,
                    internal=False,
                    configuration=configuration,
                    addresses=(pinned.addresses if pinned else ()) or known,
                    mac=None,
                    pinned_link=pinned.name if pinned else None,
                )
                await self.store.put_found_endpoint(record)
            self.teardowns.add(endpoint_id)
        except (KernelError, StateError) as exc:
            log.warning("endpoint.leftovers_kept", endpoint_id=endpoint_id, error=str(exc))
        except Exception:  # a bug is logged, and must not keep the round from handling the other endpoints
            log.exception("endpoint.leftovers_kept", endpoint_id=endpoint_id)

    async def _is_in_use(self, attachment_id: AttachmentId) -> bool:
        """Return whether the link is in a sandbox, in whichever directory Docker keeps its sandboxes."""
        name = alternative_name(attachment_id)
        return name in await self.kernel.altnames_in_use(self.run_dir) or name in await self.kernel.altnames_mounted(
            self.run_dir
        )

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
