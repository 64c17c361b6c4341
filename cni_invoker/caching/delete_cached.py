# SPDX-License-Identifier: Apache-2.0
"""The DEL of a cached attachment: it uses the parameters of ADD, resumes after a failure, and removes the record."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from cni_invoker.caching.cache import AttachmentCache, CachedAttachment
from cni_invoker.caching.stored_inputs import (
    attachment_of_add,
    document_of_delete,
    find_list_of_add,
    find_result_of_add,
)
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.errors import BadConfiguration, CacheError, CniError, NetworkBusy, PluginError
from cni_invoker.inputs.attachment import Attachment
from cni_invoker.operations.deletion import DeleteHooks, needs_rules
from cni_invoker.operations.runtime import Runtime
from cni_invoker.results.result import Result

__all__ = ["CachedDeletion", "only_logged"]

log = logging.getLogger(__name__)


class CachedDeletion:
    """Deletes cached attachments. The caller holds the container's lock.

    Args:
        runtime: Runs the plugins.
        cache: The cache of attachments.
        boot_id: The kernel's boot ID.
    """

    def __init__(self, runtime: Runtime, cache: AttachmentCache, boot_id: str) -> None:
        self._runtime = runtime
        self._cache = cache
        self._boot_id = boot_id

    async def run(
        self,
        cached: CachedAttachment,
        current: NetworkConfigurationList | None,
        given: Attachment | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Run the plugins that have not completed DEL, then remove the attachment from the cache.

        Args:
            cached: The attachment.
            current: The network's current list, None if there is none; used if the list of ADD is unknown.
            given: The attachment as the caller gives it, None if it does not.
            force: Remove it even if plugins fail; failures are logged.

        Raises:
            BadConfiguration: No list is known.
            CniError: As `Runtime.delete`, or the cache cannot be read or written; the attachment is still cached.
        """
        with only_logged(cached.network, force=force):
            await self._run_delete(cached, current, given, force=force)
        await self._cache.remove(cached.network, cached.attachment.key)

    async def list_of_add(
        self, cached: CachedAttachment, current: NetworkConfigurationList | None
    ) -> NetworkConfigurationList:
        """Return the list that was used for ADD, or the current one if that is unknown.

        Raises:
            BadConfiguration: No list is known.
        """
        used = find_list_of_add(cached, current)
        if used is not None:
            return used
        if current is None:
            raise BadConfiguration(f"that of {cached.network} has not been kept in the cache", file=None)
        return await self._runtime.negotiate(current)

    async def _run_delete(
        self,
        cached: CachedAttachment,
        current: NetworkConfigurationList | None,
        given: Attachment | None,
        *,
        force: bool,
    ) -> None:
        used, result = await self.list_of_add(cached, current), find_result_of_add(cached)
        begun = replace(
            cached,
            attachment=attachment_of_add(cached, result, given),
            configuration=document_of_delete(used),  # the indexes are those of this list
            deleted=cached.deleted or frozenset(),
        )

        async def store(deleted: frozenset[int]) -> None:
            nonlocal begun
            begun = replace(begun, deleted=deleted)
            await self._store_progress(begun)

        try:
            await self._runtime.delete(
                used,
                begun.attachment,
                result,
                added_plugins=cached.added_plugins,
                deleted=cached.deleted or (),
                hooks=DeleteHooks(is_needed=partial(self._is_needed, cached, result, force=force)),
                on_deleted=store,
                force=force,
            )
        except PluginError:  # it may have deleted a part; after other errors the stored progress is up to date
            await self._store_progress(begun)
            raise

    async def _store_progress(self, begun: CachedAttachment) -> None:
        """Store the progress of a DEL, if possible.

        A full disk must not prevent an address from being freed. At worst a repetition runs completed plugins again.
        """
        try:
            await self._cache.put(begun)
        except CacheError as exc:
            log.warning("cache.progress_not_stored", extra={"place": str(exc.place), "reason": exc.reason})

    async def _is_needed(self, cached: CachedAttachment, result: Result | None, plugin: str, *, force: bool) -> bool:
        """Return whether another attachment needs the rules that a plugin would remove by the addresses of `result`.

        Attachments that are being deleted, or are from an earlier boot, need no rules. With `force`, an unreadable
        record counts as needing them.

        Raises:
            CacheError: A record cannot be read: that attachment may have one of the addresses.
        """
        addresses = _addresses(result)
        try:
            cached_attachments = await self._cache.list(whole=True)
        except CacheError as exc:
            if not force:
                raise
            log.warning("cache.unreadable", extra={"file": str(exc.place), "reason": exc.reason})
            return True
        for other in cached_attachments:
            if (other.network, other.attachment.key) == (cached.network, cached.attachment.key):
                continue
            if other.deleted is not None or other.boot_id not in {"", self._boot_id}:
                continue
            used = find_list_of_add(other, None)
            types = None if used is None else {one.type for one in used.plugins}
            owned = _addresses(find_result_of_add(other))
            if needs_rules(plugin, addresses, other_types=types, other_addresses=owned):
                return True
        return False


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
        log.warning("delete.incomplete", extra={"network": network, "error": str(exc)})


def _addresses(result: Result | None) -> frozenset[str]:
    return frozenset(str(ip.address.ip) for ip in result.ips) if result is not None else frozenset()
