# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Undoes attachments: brings the link to where the plugins have made it, and runs DEL there.

CNI plugins clean up completely only if DEL finds the link in the namespace of ADD, under the same name and with exactly
the addresses of the result (measured): they find masquerade rules, for example, by these addresses. So in mode *move*
the link is brought back to its staging namespace, from wherever it is; a veth replaces a link that no longer exists.

In mode *sandbox* DEL runs through the pin, which keeps the sandbox with the link and its addresses until then. If the
container is running (`docker network disconnect`), or the link is gone, because the host was rebooted or an operator
removed it, DEL runs in a staging namespace. That is then mounted at the pin: plugins receive the path of ADD in any
case.
"""

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_state import EndpointRecord
from cni_invoker import CniError, PluginFailed, Runtime
from cni_invoker.advanced import DeleteHooks
from cnm_bridge.core.endpoint import Endpoint, pin_path, staging_path
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link.endpoint_replies import given_addresses, with_addresses
from cnm_bridge.core.link_state import IpInterface
from cnm_bridge.core.lists.changes import RESERVATION
from cnm_bridge.core.planning.ports import plugins_without_delete
from cnm_bridge.driver.attach.attacher import DeleteProgress
from cnm_bridge.driver.attach.leases import Leases
from cnm_bridge.driver.attach.place_finder import PlaceFinder
from cnm_bridge.system.kernel import Kernel, LinkLocation, StagedLink

_CHAIN_GONE: Final = re.compile(r"\(nf_tables\): Chain '[^']+' does not exist")

Addresses = tuple[IpInterface, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePlace:
    """Where plugins run DEL."""

    netns: Path
    """The namespace in which they find the link; it is made if it does not exist."""
    sandbox: Path | None
    """Where else to look for the link, None for the host namespace only."""
    added_in: Path | None = None
    """The namespace path of ADD, None if it is `netns`. The plugins receive it again, because some (ovs-cni) find what
    they made by it. The namespace is mounted there too."""
    is_shared: bool = False
    """Whether `netns` is the pin of a sandbox, where links of other networks may be."""

    @property
    def received(self) -> Path:
        """The path that the plugins receive."""
        return self.added_in or self.netns


@dataclass(frozen=True, slots=True)
class MoveDetacher:
    """Brings links back and runs DEL."""

    runtime: Runtime
    kernel: Kernel

    async def detach(self, record: EndpointRecord, progress: DeleteProgress) -> str:
        """Undo an attachment; see `Attacher.detach`."""
        endpoint = Endpoint(record)
        link = await self.run_plugins(endpoint, progress, DeletePlace(netns=endpoint.netns, sandbox=endpoint.sandbox))
        await self.kernel.remove_staging(endpoint.netns)
        return link

    async def run_plugins(self, endpoint: Endpoint, progress: DeleteProgress, place: DeletePlace) -> str:
        """Bring the link back and run DEL of all plugins that have not completed it; return where the link was."""
        if len(progress.deleted) == len(endpoint.network.plugins):
            return "deleted"
        found = await self._bring_back(endpoint, place, _addresses(endpoint))
        if place.added_in is not None:
            await self.kernel.mount_instead(place.netns, place.added_in)
        if _addresses(endpoint) is None:
            endpoint = await self.keep_addresses(endpoint, progress, place.netns, endpoint.record.attachment.ifname)
        await self._delete_all(endpoint, place, _addresses(endpoint) or (), progress)
        return found.value

    async def keep_addresses(self, endpoint: Endpoint, progress: DeleteProgress, netns: Path, ifname: str) -> Endpoint:
        """Return the endpoint with the addresses of its link, if the record has none; they are stored.

        If the link leaves the namespace, or the first DEL deletes it and is killed, no other copy of them exists.
        Raises `KernelError` if there is no link `ifname` in `netns`.
        """
        if _addresses(endpoint):
            return endpoint
        found = await self._link(endpoint, netns, ifname).look()
        if not given_addresses(found):
            return endpoint
        endpoint = Endpoint(with_addresses(replace(endpoint.record, snapshot=found.to_json())))
        await progress.save(endpoint.record)
        return endpoint

    async def _bring_back(self, endpoint: Endpoint, place: DeletePlace, addresses: Addresses | None) -> LinkLocation:
        link = self._link(endpoint, place.netns, endpoint.record.attachment.ifname)
        return await link.bring_back(
            sandbox=place.sandbox,
            addresses=addresses,
            is_device=endpoint.has_device,
            device=endpoint.device,
            is_shared=place.is_shared,
        )

    def _link(self, endpoint: Endpoint, netns: Path, ifname: str) -> StagedLink:
        return self.kernel.staged_link(netns, ifname, host_name=endpoint.host_link, altname=endpoint.altname)

    async def _delete_all(
        self, endpoint: Endpoint, place: DeletePlace, addresses: Addresses, progress: DeleteProgress
    ) -> None:
        """Run DEL; if a plugin was killed between two addresses, run its DEL once per address."""
        try:
            await self._delete(endpoint, place, addresses, progress)
        except PluginFailed as exc:
            if not addresses or not _is_half_done(exc):
                raise
            # DEL runs in reverse order, so of two plugins of one type the later one has failed
            pending = frozenset(range(len(endpoint.network.plugins))) - progress.deleted
            index = max(i for i in pending if endpoint.network.plugins[i].type == exc.plugin)
            await self._delete_by_address(endpoint, place, addresses, index, progress)

    async def _delete(
        self, endpoint: Endpoint, place: DeletePlace, addresses: Addresses, progress: DeleteProgress
    ) -> None:
        """Run DEL of all plugins that have not completed it, and store the progress."""

        async def save(deleted: frozenset[int]) -> None:
            progress.deleted = deleted
            if len(deleted) < len(endpoint.network.plugins):  # otherwise the record is removed next
                await progress.save(endpoint.record)

        await self.runtime.delete(
            endpoint.network,
            endpoint.attachment_in(place.received),
            endpoint.result,
            added_plugins=endpoint.record.added_plugins,
            deleted=progress.deleted,
            on_deleted=save,
            hooks=DeleteHooks(
                is_needed=partial(progress.is_needed, endpoint.record),
                # bridge and ptp delete the link first; if they are killed then, they cannot find their masquerade rules
                restore=partial(self._bring_back, endpoint, place, addresses),
                in_slot=False,
                attachment_of=partial(endpoint.attachment_of, netns=place.received),
            ),
        )

    async def _delete_by_address(
        self, endpoint: Endpoint, place: DeletePlace, addresses: Addresses, index: int, progress: DeleteProgress
    ) -> None:
        """Run DEL of the plugin at an index once for each address, then DEL of all pending plugins.

        If a plugin was killed between two addresses, the rules of the first are gone. Every later DEL fails there, and
        never reaches the second address. No other plugin runs more than once.
        """
        for address in addresses:
            await self._bring_back(endpoint, place, (address,))
            try:
                await self.runtime.delete(
                    endpoint.network.with_plugins([endpoint.network.plugins[index]]),
                    endpoint.attachment_of(index, netns=place.received),
                    endpoint.result,
                    added_plugins=int(index < endpoint.record.added_plugins),
                    hooks=DeleteHooks(
                        is_needed=partial(progress.is_needed, endpoint.record),
                        restore=partial(self._bring_back, endpoint, place, (address,)),
                        in_slot=False,
                    ),
                )
            except PluginFailed as exc:
                if not _is_half_done(exc):
                    raise
        await self._bring_back(endpoint, place, ())
        await self._delete(endpoint, place, (), progress)


def _is_half_done(exc: PluginFailed) -> bool:
    """Return whether a plugin failed because an iptables chain that it has to remove no longer exists.

    There is no error code for that. Plugins recognise the message of older iptables, but not that of iptables-nft.
    """
    return exc.signal is None and _CHAIN_GONE.search(exc.msg) is not None


def _addresses(endpoint: Endpoint) -> Addresses | None:
    """Return the addresses that the link must have for DEL, None to leave them unchanged.

    These are the addresses of the result. The last plugin of a chain may print a result without addresses; then they
    come from the snapshot, because the first plugin finds its masquerade rules by the addresses that it gave.
    """
    reported = endpoint.result.addresses_of(endpoint.record.attachment.ifname) if endpoint.result else ()
    if reported or endpoint.snapshot is None:
        return reported or None
    return given_addresses(endpoint.snapshot)


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
                progress.deleted = plugins_without_delete(replace(record, deleted=()))
            # In a running container a veth must not replace the link, and a link with another name cannot be renamed if
            # the name is taken.
            is_in_place = name == record.attachment.ifname and not await self._may_be_inhabited(record)
            if name is not None:
                await self._release_lease(endpoint)
            elsewhere = DeletePlace(netns=staging, sandbox=pin, added_in=pin)
            place = DeletePlace(netns=pin, sandbox=None, is_shared=True) if is_in_place else elsewhere
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
