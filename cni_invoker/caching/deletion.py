# SPDX-License-Identifier: Apache-2.0
"""Deletes cached attachments: one, with the parameters of ADD, and for GC all that are stale.

A DEL resumes after a failure and then removes the record. The plugins' GC receives every cached attachment as valid.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from cni_invoker.caching.cache import AttachmentCache, CachedAttachment
from cni_invoker.caching.record import (
    attachment_of_add,
    document_of_delete,
    find_list_of_add,
    find_result_of_add,
    lists_of_adds,
)
from cni_invoker.deletion import DeleteHooks
from cni_invoker.documents.attachment import Attachment, AttachmentKey
from cni_invoker.documents.known_plugins import needs_rules
from cni_invoker.documents.lists import NetworkConfigurationList
from cni_invoker.documents.results import Result
from cni_invoker.errors import (
    AttachmentExists,
    BadConfiguration,
    CacheError,
    CniError,
    GcFailed,
    NetworkBusy,
    PluginError,
)
from cni_invoker.messages import log_event
from cni_invoker.negotiation import has_gc
from cni_invoker.runtime import Runtime


@dataclass(frozen=True, slots=True)
class CachedDeletion:
    """Deletes cached attachments. The caller holds the container's lock."""

    runtime: Runtime
    cache: AttachmentCache
    boot_id: str

    async def run(
        self,
        cached: CachedAttachment,
        current: NetworkConfigurationList | None,
        given: Attachment | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Run the plugins that have not completed DEL, then remove the attachment from the cache.

        `current`, the network's list of now, is used if that of ADD is unknown; `given` is the caller's attachment.

        Raises:
            BadConfiguration: No list is known.
            CniError: As `Runtime.delete`, or the cache cannot be read or written; the attachment is still cached.
        """
        is_removed = False
        with only_logged(cached.network, force=force):
            is_removed = await self._run_delete(cached, current, given, force=force)
        if not is_removed:
            await self.cache.remove(cached.network, cached.attachment.key)

    async def list_of_add(
        self, cached: CachedAttachment, current: NetworkConfigurationList | None
    ) -> NetworkConfigurationList:
        """Return the list that was used for ADD, or the current one if that is unknown.

        Raises:
            BadConfiguration: No list is known.
        """
        used = find_list_of_add(cached)
        if used is not None:
            return used
        if current is None:
            raise BadConfiguration(f"that of {cached.network} has not been kept in the cache", file=None)
        return await self.runtime.negotiate(current)

    async def _run_delete(
        self,
        cached: CachedAttachment,
        current: NetworkConfigurationList | None,
        given: Attachment | None,
        *,
        force: bool,
    ) -> bool:
        """Run the plugins; return whether the attachment was removed together with the progress of the last one."""
        used, result = await self.list_of_add(cached, current), find_result_of_add(cached)
        begun = replace(
            cached,
            attachment=attachment_of_add(cached, result, given),
            configuration=document_of_delete(used),  # the indexes are those of this list
            deleted=cached.deleted or frozenset(),
        )

        is_removed = False

        async def store(deleted: frozenset[int]) -> None:
            nonlocal begun, is_removed
            begun = replace(begun, deleted=deleted)
            if len(deleted) == len(used.plugins):
                with suppress(CacheError):  # it is tried again
                    await self.cache.remove(cached.network, cached.attachment.key)
                    is_removed = True
                    return
            await self._store_progress(begun)

        try:
            await self.runtime.delete(
                used,
                begun.attachment,
                result,
                # After a power failure the record may be its first state, which has no result: see `FileCache`.
                added_plugins=cached.added_plugins if cached.boot_id == self.boot_id else None,
                deleted=cached.deleted or (),
                hooks=DeleteHooks(is_needed=partial(self._is_needed, cached, result, force=force)),
                on_deleted=store,
                force=force,
            )
        except PluginError:  # it may have deleted a part; after other errors the stored progress is up to date
            await self._store_progress(begun)
            raise
        return is_removed

    async def _store_progress(self, begun: CachedAttachment) -> None:
        """Store the progress of a DEL, if possible: a full disk must not prevent an address from being freed."""
        try:
            await self.cache.put(begun)
        except CacheError as exc:
            log_event(__name__, "cache.progress_not_stored", place=str(exc.place), reason=exc.reason)

    async def _is_needed(self, cached: CachedAttachment, result: Result | None, plugin: str, *, force: bool) -> bool:
        """Return whether another attachment needs the rules that a plugin would remove by the addresses of `result`.

        Those that are being deleted, or are from an earlier boot, need none. An unreadable record is an error, and with
        `force` counts as needing them.
        """
        addresses = _addresses(result)
        try:
            cached_attachments = await self.cache.list(whole=True)
        except CacheError as exc:
            if not force:
                raise
            log_event(__name__, "cache.unreadable", file=str(exc.place), reason=exc.reason)
            return True
        for other in cached_attachments:
            if (other.network, other.attachment.key) == (cached.network, cached.attachment.key):
                continue
            if other.deleted is not None or other.boot_id not in {"", self.boot_id}:
                continue
            used = find_list_of_add(other)
            types = None if used is None else {one.type for one in used.plugins}
            owned = _addresses(find_result_of_add(other))
            if needs_rules(plugin, addresses, other_types=types, other_addresses=owned):
                return True
        return False


class AddsInProgress:
    """The attachments that the tasks of one runtime are adding."""

    def __init__(self) -> None:
        self._running: set[tuple[str, AttachmentKey]] = set()
        self._observers: list[set[tuple[str, AttachmentKey]]] = []

    @contextmanager
    def adding(self, network: str, key: AttachmentKey) -> Iterator[None]:
        """Count an attachment as being added while the body runs.

        Raises:
            AttachmentExists: Another task is adding it; the body has not run.
        """
        identity = (network, key)
        if identity in self._running:
            raise AttachmentExists(network, key.container_id, key.ifname)
        for observed in (self._running, *self._observers):
            observed.add(identity)
        try:
            yield
        finally:
            self._running.discard(identity)

    @contextmanager
    def observed(self) -> Iterator[Collection[tuple[str, AttachmentKey]]]:
        """Give the network and key of each attachment that is being added when the body begins, or while it runs."""
        observed = set(self._running)
        self._observers.append(observed)
        try:
            yield observed
        finally:  # by identity: two observers may have equal sets
            self._observers = [other for other in self._observers if other is not observed]


@dataclass(frozen=True, slots=True)
class DeleteStale:
    """Deletes stale cached attachments and runs GC."""

    deletion: CachedDeletion
    adds: AddsInProgress
    wait_s: float

    async def run(self, network: NetworkConfigurationList, valid: Collection[AttachmentKey]) -> None:
        """Delete every cached attachment to a network that is not valid, then run the plugins' GC."""
        errors: list[CniError] = []
        with self.adds.observed() as spared:
            cached_attachments = await self.deletion.cache.list(network.name)
            for cached in cached_attachments:
                if cached.attachment.key not in valid:
                    try:
                        await self._delete_stale(cached, network, spared)
                    except CniError as exc:
                        errors.append(exc)
            for used in lists_of_adds(network, cached_attachments):
                try:
                    await self._gc_plugins(used, valid)
                except GcFailed as exc:
                    errors.extend(exc.errors)
                except CniError as exc:
                    errors.append(exc)
        if errors:
            raise GcFailed(network.name, errors)

    async def _delete_stale(
        self, cached: CachedAttachment, network: NetworkConfigurationList, spared: Collection[tuple[str, AttachmentKey]]
    ) -> None:
        """Delete a stale attachment, unless it has been replaced or is in use once it is locked."""
        cache, key = self.deletion.cache, cached.attachment.key
        async with cache.hold(network.name, key.container_id, wait_s=self.wait_s):
            if (network.name, key) not in spared and await cache.find(network.name, key) == cached:
                await self.deletion.run(cached, network)

    async def _gc_plugins(self, network: NetworkConfigurationList, valid: Collection[AttachmentKey]) -> None:
        """Have the plugins clean up what belongs to no attachment; every cached one is valid, whatever its state."""
        if not has_gc(network):
            return
        cache = self.deletion.cache
        async with cache.hold(network.name, None, wait_s=self.wait_s):
            # A damaged record may be a valid attachment.
            known = [cached.attachment.key for cached in await cache.list(network.name, whole=True)]
            await self.deletion.runtime.gc(network, (*valid, *known))


@contextmanager
def only_logged(network: str, *, force: bool) -> Iterator[None]:
    """With `force`, log errors instead of raising them, except `NetworkBusy`."""
    try:
        yield
    except NetworkBusy:
        raise
    except CniError as exc:
        if not force:
            raise
        log_event(__name__, "delete.incomplete", network=network, error=str(exc))


def _addresses(result: Result | None) -> frozenset[str]:
    return frozenset(str(ip.address.ip) for ip in result.ips) if result is not None else frozenset()
