# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The one undo: failed creates, DeleteEndpoint and recovery all use it, and it may be repeated at any point.

The recipe is measured: CNI plugins clean up after themselves only when DEL finds the link in the namespace of the ADD,
under the same name and with exactly the result's addresses; masquerade rules, for one, are found by them. So the link
is brought back from wherever it is, or a placeholder stands in for it.
"""

import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from cni_invoker import NetworkConfigurationList, PluginFailed, Result, Runtime
from cnm_bridge.kernel import IpInterface, Kernel, LinkLocation, Snapshot
from cnm_bridge.model.attachment import cni_attachment
from cnm_bridge.model.naming import alternative_name, host_link_name
from cnm_bridge.planning.join_response import given_addresses, with_addresses
from cnm_bridge.teardown.address_owners import AddressOwners
from cnm_bridge.teardown.places import TeardownPlaces
from state import EndpointId, EndpointRecord, Phase, StateUnusable, Store

__all__ = ["Teardown", "first_pending_plugin"]

log = structlog.get_logger()

_CHAIN_GONE: Final = re.compile(r"\(nf_tables\): Chain '[^']+' does not exist")


class Teardown:
    """Undoes an endpoint.

    Args:
        store: The records.
        runtime: Runs the plugins' DEL.
        kernel: Brings links back.
        owners: Knows whose the addresses are.
        places: Limits how many plugins run at once for tear downs in the background.
    """

    def __init__(
        self, store: Store, runtime: Runtime, kernel: Kernel, owners: AddressOwners, places: TeardownPlaces
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._kernel = kernel
        self._owners = owners
        self._places = places
        self._deleted: dict[EndpointId, frozenset[int]] = {}  # on a full disk it is more than the records tell

    async def __call__(self, record: EndpointRecord) -> None:
        """Undo all that was done for `record`, whatever its phase; the caller holds the endpoint's lock.

        The record is gone when this returns. When it raises, it is still there, and calling again resumes: a plugin
        whose DEL has completed does not run again, in this process also if that could not be stored.

        Raises:
            CniError: A plugin's DEL failed twice.
            KernelError: The link or the namespace cannot be had.
            StateError: The record cannot be written; all else is undone.
        """
        started = time.monotonic()
        self._deleted[record.id] = self._deleted.get(record.id, frozenset()) | frozenset(record.deleted)
        if record.phase is not Phase.DELETING:
            record = replace(record, phase=Phase.DELETING)
            await self._write(record)
        link = await self._run_plugins(record)
        await self._kernel.remove_staging(Path(record.attachment.netns))
        if self._store.get_endpoint(record.id).phase is not Phase.DELETING:  # there was no space; there may be now
            await self._store.put_endpoint(self._with_progress(record))
        await self._store.remove_endpoint(record.id)
        del self._deleted[record.id]
        duration_ms = round((time.monotonic() - started) * 1000, 1)
        log.info("endpoint.torn_down", endpoint_id=record.id, link=link, duration_ms=duration_ms)

    def _with_progress(self, record: EndpointRecord) -> EndpointRecord:
        return replace(record, deleted=tuple(sorted(self._deleted[record.id])))

    async def _write(self, record: EndpointRecord) -> None:
        """Write a record if that is possible: a full disk must not keep the address and the link."""
        try:
            await self._store.put_endpoint(self._with_progress(record))
        except StateUnusable as exc:
            log.warning("endpoint.not_stored", endpoint_id=record.id, error=str(exc))

    async def _run_plugins(self, record: EndpointRecord) -> str:
        """Bring the link back and run the DEL of all plugins that have not completed it; return where the link was."""
        if len(self._deleted[record.id]) == len(_network(record).plugins):
            return "deleted"
        result = Result.from_document(record.result) if record.result is not None else None
        addresses = _addresses(record, result)
        found = await self._bring_back(record, addresses)
        if addresses is None:
            staged = await self._kernel.look_at_staged(Path(record.attachment.netns), record.attachment.ifname)
            addresses = given_addresses(staged)
            if addresses:  # the first DEL may delete the link and die, and nobody else knows them
                record = with_addresses(replace(record, snapshot=staged.to_json()))
                await self._write(record)
        await self._delete_all(record, result, addresses)
        return found.value

    async def _bring_back(self, record: EndpointRecord, addresses: tuple[IpInterface, ...] | None) -> LinkLocation:
        return await self._kernel.bring_back(
            Path(record.attachment.netns),
            record.attachment.ifname,
            host_name=host_link_name(record.attachment_id),
            altname=alternative_name(record.attachment_id),
            sandbox=Path(record.sandbox_key) if record.sandbox_key else None,
            addresses=addresses,
        )

    async def _delete_all(
        self, record: EndpointRecord, result: Result | None, addresses: tuple[IpInterface, ...]
    ) -> None:
        """Run DEL, address by address where a plugin may have stopped between two."""
        try:
            await self._delete(record, result, addresses)
        except PluginFailed as exc:
            if not addresses or not _is_half_done(exc):
                raise
            await self._delete_apart(record, result, addresses, self._index_of_failed(record, exc))

    def _pending(self, record: EndpointRecord) -> frozenset[int]:
        """Return the indexes of the plugins whose DEL has not completed."""
        return frozenset(range(len(_network(record).plugins))) - self._deleted[record.id]

    def _index_of_failed(self, record: EndpointRecord, exc: PluginFailed) -> int:
        """Return the index of the plugin that has failed; of two of one type the one behind runs first."""
        plugins = _network(record).plugins
        return max(index for index in self._pending(record) if plugins[index].type == exc.plugin)

    async def _delete(self, record: EndpointRecord, result: Result | None, addresses: tuple[IpInterface, ...]) -> None:
        """Run the DEL of all plugins that have not completed it, and keep which have."""

        async def keep(deleted: frozenset[int]) -> None:
            self._deleted[record.id] = deleted
            if self._pending(record):  # else the record is removed, which says more
                await self._write(record)

        await self._runtime.delete(
            _network(record),
            cni_attachment(record),
            result,
            added_plugins=record.added_plugins,
            deleted=self._deleted[record.id],
            is_needed=partial(self._is_needed, record),
            # bridge and ptp delete the link first: killed after that, they would never find their masquerading
            restore=partial(self._bring_back, record, addresses),
            on_deleted=keep,
            place=self._places.find_plugin_place(record.id),
        )

    async def _delete_apart(
        self, record: EndpointRecord, result: Result | None, addresses: tuple[IpInterface, ...], index: int
    ) -> None:
        """Undo the masquerading of each address by itself, and then the rest.

        A plugin that was killed between two addresses fails for ever at the first, which is done, and never comes to
        the second.

        Args:
            record: The endpoint.
            result: What the plugins receive.
            addresses: Those of the link.
            index: The plugin that was killed; no other one runs more than once.
        """
        for address in addresses:
            await self._bring_back(record, (address,))
            try:
                await self._runtime.delete(
                    _network(record).with_plugins([_network(record).plugins[index]]),
                    cni_attachment(record),
                    result,
                    added_plugins=int(index < record.added_plugins),
                    is_needed=partial(self._is_needed, record),
                    restore=partial(self._bring_back, record, (address,)),
                )
            except PluginFailed as exc:
                if not _is_half_done(exc):
                    raise
        await self._bring_back(record, ())
        await self._delete(record, result, ())

    async def _is_needed(self, record: EndpointRecord, plugin: str) -> bool:
        """Return whether another endpoint needs what a plugin's DEL would remove by the addresses.

        Raises:
            AddressClaimed: That is not certain yet.
        """
        owner = self._owners.find_owner(record, plugin, leaving=self._deleted.keys())
        if owner is not None:
            log.info("endpoint.address_has_new_owner", endpoint_id=record.id, owner=owner, plugin=plugin)
        return owner is not None


def first_pending_plugin(record: EndpointRecord) -> str | None:
    """Return the type of the plugin whose DEL is the next to complete, None if all have completed."""
    plugins = _network(record).plugins
    return next((plugins[i].type for i in reversed(range(len(plugins))) if i not in record.deleted), None)


def _network(record: EndpointRecord) -> NetworkConfigurationList:
    """Return the list as the plugins were run with it."""
    stored = NetworkConfigurationList.from_document(record.attachment.configuration)
    return stored.with_version(record.attachment.cni_version)


def _is_half_done(exc: PluginFailed) -> bool:
    """Tell whether a plugin failed because the iptables chain that it was to remove is not there any more.

    There is no error code for that; plugins take the words of the older iptables for success, but not these.
    """
    return exc.signal is None and _CHAIN_GONE.search(exc.msg) is not None


def _addresses(record: EndpointRecord, result: Result | None) -> tuple[IpInterface, ...] | None:
    """Return the addresses that the link must have for DEL, None for those it has.

    They are the result's; but the last plugin of a chain may print a result without any, and the masquerading of the
    first is found by what it gave.
    """
    told = result.addresses_of(record.attachment.ifname) if result else ()
    if told or record.snapshot is None:
        return told or None
    return given_addresses(Snapshot.from_json(record.snapshot))
