# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Brings the name servers of CNI results into containers (`cni.dns`), before their process starts.

From Engine 28.1 on, EndpointOperInfo comes between Join and the start of the process. Docker has written the
container's resolv.conf by then. The call comes several times, so a passing failure is followed by another attempt.
"""

from dataclasses import dataclass, field
from functools import partial

import structlog

from cni_bridge_state import EndpointId, EndpointRecord, NotJoined, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts import container_of_cgroup
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.planning.resolv_conf import Edit, FileEdit, edit_resolv_conf, has_anything
from cnm_bridge.driver.attach.sandbox_owner import SandboxOwners
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()


@dataclass(slots=True)
class _Progress:
    """How far the file of one endpoint is.

    Attributes:
        done: Whether nothing is left to do.
        error: Why the previous attempt failed, "" if none has.
    """

    done: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class DnsFiles:
    """Edits the resolv.conf of containers, once for each endpoint."""

    store: Store
    kernel: Kernel
    owners: SandboxOwners
    _progress: dict[EndpointId, _Progress] = field(default_factory=dict, init=False)

    def forget(self, endpoint_id: EndpointId) -> None:
        """Forget an endpoint that leaves its sandbox, or is gone."""
        self._progress.pop(endpoint_id, None)

    async def apply(self, endpoint_id: EndpointId) -> None:
        """Bring the name servers of an endpoint's result into its container; a failure is logged."""
        record = self.store.find_endpoint(endpoint_id)
        if record is None or record.phase is not Phase.JOINED:
            return
        option = record.attachment.dns
        result = None if option is None else Endpoint(record).result
        if option is None or result is None or not has_anything(result.dns, option):
            return
        progress = self._progress.setdefault(endpoint_id, _Progress())
        if progress.done:
            return
        edited = await self._try(
            record, partial(edit_resolv_conf, dns=result.dns, option=option, endpoint_id=endpoint_id)
        )
        if self._progress.get(endpoint_id) is not progress:  # it has left meanwhile
            return
        progress.done = not edited.obstacle
        if edited.content is not None:
            log.info("endpoint.dns_set", endpoint_id=endpoint_id, option=option.value)
        if edited.obstacle and edited.obstacle != progress.error:
            log.warning("endpoint.dns_not_set", endpoint_id=endpoint_id, error=edited.obstacle)
        progress.error = edited.obstacle

    async def _try(self, record: EndpointRecord, edit: Edit) -> FileEdit:
        """Edit the file of the container of an endpoint; a failure is an obstacle."""
        try:
            owner = await self.owners.find(record.sandbox)
            process = owner.process
            container_id = None if process is None else container_of_cgroup(process.cgroup)
            if process is None or container_id is None:
                return FileEdit(obstacle=f"the container is not known: {owner.unknown}")
            return await self.kernel.edit_resolv_conf(process.pid, container_id, edit)
        except (KernelError, NotJoined) as exc:
            return FileEdit(obstacle=str(exc))
