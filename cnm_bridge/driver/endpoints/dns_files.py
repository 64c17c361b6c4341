# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Brings the name servers of CNI results into containers (`cni.dns`), before their process starts.

From Engine 28.1 on, EndpointOperInfo comes between Join and the start of the process. Docker has written the
container's resolv.conf by then. The call comes several times, so a passing failure is followed by another attempt.
"""

from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import EndpointId, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.engine_facts import container_of_cgroup
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.planning.resolv_conf import edit_resolv_conf, has_own_settings
from cnm_bridge.driver.attach.sandbox_owner import SandboxOwners
from cnm_bridge.system.kernel import Kernel

__all__ = ["DnsFiles"]

log = structlog.get_logger()

_OWN_SETTINGS: Final = (
    "name servers or search domains were given in Docker, with --dns or --dns-search of the container or with dns or "
    "dns-search in the engine's daemon.json, and these stay"
)


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
        self._errors: dict[EndpointId, str] = {}

    def forget(self, endpoint_id: EndpointId) -> None:
        """Forget an endpoint that leaves its sandbox."""
        self._done.discard(endpoint_id)
        self._errors.pop(endpoint_id, None)

    async def apply(self, endpoint_id: EndpointId) -> None:
        """Bring the name servers of an endpoint's result into its container; a failure is logged."""
        record = self._store.find_endpoint(endpoint_id)
        if record is None or record.phase is not Phase.JOINED or endpoint_id in self._done:
            return
        option = record.attachment.dns
        result = None if option is None else Endpoint(record).result
        if option is None or result is None:
            return
        stays = False

        def edit(text: str) -> str | None:
            nonlocal stays
            stays = has_own_settings(text)
            return edit_resolv_conf(text, result.dns, option, endpoint_id)

        try:
            owner = await self._owners.find(Path(record.sandbox_key or ""))
            process = owner.process
            container_id = None if process is None else container_of_cgroup(process.cgroup)
            if process is None or container_id is None:
                self._fail(endpoint_id, f"the container is not known: {owner.unknown}")
                return
            if await self._kernel.edit_resolv_conf(process.pid, container_id, edit):
                log.info("endpoint.dns_set", endpoint_id=endpoint_id, option=option.value)
        except KernelError as exc:
            self._fail(endpoint_id, str(exc))
            return
        self._done.add(endpoint_id)
        if stays:
            self._fail(endpoint_id, _OWN_SETTINGS)

    def _fail(self, endpoint_id: EndpointId, error: str) -> None:
        """Log why the file stays, unless the previous attempt failed for the same reason."""
        if self._errors.get(endpoint_id) != error:
            log.warning("endpoint.dns_not_set", endpoint_id=endpoint_id, error=error)
        self._errors[endpoint_id] = error
