# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Brings the name servers of CNI results into containers (`cni.dns`), before their process starts.

From Engine 28.1 on, EndpointOperInfo comes between Join and the start of the process. Docker has written the
container's resolv.conf by then.
"""

from functools import partial
from pathlib import Path

import structlog

from cni_bridge_state import EndpointId, Phase, Store
from cnm_bridge.attach.sandbox_owner import SandboxOwners
from cnm_bridge.engine import container_of_cgroup
from cnm_bridge.kernel import Kernel, KernelError
from cnm_bridge.model.endpoint import Endpoint
from cnm_bridge.planning.resolv_conf import edit_resolv_conf

__all__ = ["DnsFiles"]

log = structlog.get_logger()


class DnsFiles:
    """Edits the resolv.conf of containers, once for each endpoint.

    Args:
        store: The records.
        kernel: Edits the file.
        owners: Finds the container.
    """

    def __init__(self, store: Store, kernel: Kernel, owners: SandboxOwners) -> None:
        self._store = store
        self._kernel = kernel
        self._owners = owners
        self._done: set[EndpointId] = set()

    def forget(self, endpoint_id: EndpointId) -> None:
        """Forget an endpoint that leaves its sandbox."""
        self._done.discard(endpoint_id)

    async def apply(self, endpoint_id: EndpointId) -> None:
        """Bring the name servers of an endpoint's result into its container; a failure is logged."""
        record = self._store.find_endpoint(endpoint_id)
        if record is None or record.phase is not Phase.JOINED or endpoint_id in self._done:
            return
        option = record.attachment.dns
        result = None if option is None else Endpoint(record).result
        if option is None or result is None:
            return
        self._done.add(endpoint_id)
        try:
            process = (await self._owners.find(Path(record.sandbox_key or ""))).process
            container_id = None if process is None else container_of_cgroup(process.cgroup)
            if process is None or container_id is None:
                log.warning("endpoint.dns_not_set", endpoint_id=endpoint_id, error="the container is not known")
                return
            edit = partial(edit_resolv_conf, dns=result.dns, option=option)
            if await self._kernel.edit_resolv_conf(process.pid, container_id, edit):
                log.info("endpoint.dns_set", endpoint_id=endpoint_id, option=option.value)
        except KernelError as exc:
            log.warning("endpoint.dns_not_set", endpoint_id=endpoint_id, error=str(exc))
