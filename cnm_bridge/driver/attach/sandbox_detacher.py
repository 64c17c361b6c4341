# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Undoes an attachment of mode *hybrid* or *direct*: runs DEL through the pin of the sandbox.

The pin keeps the sandbox, with the link and its addresses, until then; usually the container has ended and Docker has
removed its own mount. If the container is running (`docker network disconnect`), the link is moved to a staging
namespace first. DEL also runs there if the link is gone, because the host was rebooted or an operator removed it. That
namespace is then mounted at the pin: plugins receive the path of ADD in any case.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import EndpointRecord
from cni_invoker import CniError, Runtime
from cni_invoker.advanced import DeleteHooks
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.core.lists.reserved_list import RESERVATION
from cnm_bridge.core.naming import pin_path, staging_path
from cnm_bridge.driver.attach.attacher import DeleteProgress
from cnm_bridge.driver.attach.leases import Leases
from cnm_bridge.driver.attach.move_detacher import DeletePlace, MoveDetacher
from cnm_bridge.driver.attach.place_finder import PlaceFinder
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_BESIDE_LINK: Final = frozenset({"sbr", "vrf"})
"""Plugins that make policy rules or a further link in the sandbox; no other one is known (plugins 1.1.1 and 1.9.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxDetacher:
    """Runs DEL in sandboxes."""

    runtime: Runtime
    kernel: Kernel
    places: PlaceFinder
    move: MoveDetacher
    leases: Leases
    run_dir: Path

    async def detach(self, record: EndpointRecord, progress: DeleteProgress) -> str:
        """Undo an attachment; see `Attacher.detach`."""
        endpoint = Endpoint(record)
        pin, staging = pin_path(self.run_dir, record.attachment.id), staging_path(self.run_dir, record.attachment.id)
        mac = endpoint.snapshot.link.mac if endpoint.snapshot else None
        name = await self.kernel.pin(pin, record.attachment.ifname, endpoint.altname).find(
            mac, plugins_have_run=endpoint.netns == pin
        )
        if name is not None:
            endpoint = await self.move.keep_addresses(endpoint, progress, pin, name)
        pending = frozenset(range(len(endpoint.network.plugins))) - progress.deleted
        if record.attachment.has_reservation and pending == {RESERVATION} and name is None:
            await self._release(endpoint, progress)
            link = "none"
        else:
            # A record from before Join says that no plugin has run in the sandbox; the link disproves it. In a record
            # with the pin, `deleted` has only plugins whose DEL has completed.
            if name is not None and endpoint.netns != pin and pending <= {RESERVATION}:
                progress.deleted = frozenset()
            # In a running container a veth must not replace the link, and a link with another name cannot be renamed if
            # the name is taken.
            is_in_place = name == record.attachment.ifname and not await self._may_be_inhabited(record)
            if name is not None:
                await self._release_lease(endpoint)
            elsewhere = DeletePlace(netns=staging, sandbox=pin, added_in=pin)
            place = DeletePlace(netns=pin, sandbox=None) if is_in_place else elsewhere
            link = await self.move.run_plugins(endpoint, progress, place)
        await self.kernel.remove_staging(staging, pin)
        return link

    async def undo_before_link(self, endpoint: Endpoint) -> None:
        """Run DEL of the plugins that need the link or whose effects would outlive it in a running container.

        The teardown runs it again, and it finds nothing then. A failure is logged.
        """
        await self._release_lease(endpoint)
        plugins = [plugin for plugin in endpoint.chain.plugins if plugin.type in _BESIDE_LINK]
        if not plugins:
            return
        network = endpoint.chain.with_plugins(plugins)
        try:
            await self.runtime.delete(network, endpoint.attachment, endpoint.result, added_plugins=len(plugins))
        except CniError as exc:
            log.warning("endpoint.not_withdrawn", endpoint_id=endpoint.id, error=str(exc))

    async def _release_lease(self, endpoint: Endpoint) -> None:
        """Release the DHCP lease through the link: `bridge` runs `dhcp` when its link is gone, too late for RELEASE."""
        try:
            await self.leases.release(endpoint)
        except CniError as exc:
            log.warning("endpoint.lease_not_released", endpoint_id=endpoint.id, error=str(exc))

    async def _may_be_inhabited(self, record: EndpointRecord) -> bool:
        try:
            return await self.places.is_inhabited(record)
        except KernelError:  # not all processes are visible
            return True

    async def _release(self, endpoint: Endpoint, progress: DeleteProgress) -> None:
        """Run DEL of the IPAM plugin, which needs no link."""
        await self.runtime.delete(
            endpoint.network,
            endpoint.attachment,
            endpoint.result,
            added_plugins=endpoint.record.added_plugins,
            deleted=progress.deleted,
            hooks=DeleteHooks(in_slot=False, attachment_of=partial(endpoint.attachment_of, netns=endpoint.netns)),
        )
