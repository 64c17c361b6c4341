# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The DEL of an attachment that is remembered: with what ADD was given, resumed where it has begun, then forgotten."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from cni_invoker.attachment import Attachment
from cni_invoker.caching.cache import AttachmentCache, CachedAttachment
from cni_invoker.caching.replay import attachment_of_add, document_of_delete, find_list_of_add, find_result_of_add
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.deletion import needs_rules
from cni_invoker.errors import BadConfiguration, CacheError, CniError, NetworkBusy
from cni_invoker.plugin_errors import PluginError
from cni_invoker.results.result import Result
from cni_invoker.runtime import Runtime

__all__ = ["CachedDeletion", "only_logged"]

log = logging.getLogger(__name__)


class CachedDeletion:
    """Deletes attachments as they are remembered. The caller keeps everybody else off the container.

    Args:
        runtime: Runs the plugins.
        cache: Remembers the attachments.
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
        """Run the plugins that have not completed their DEL, and forget the attachment.

        Args:
            cached: The attachment.
            current: The network's list as it is now, None if there is none; it is used if that of ADD is not known.
            given: What the caller knows of the attachment, None for nothing.
            force: Forget it even if plugins fail; that is logged.

        Raises:
            BadConfiguration: No list is known.
            CniError: As `Runtime.delete`, or the cache cannot be read or written; it is still remembered.
        """
        with only_logged(cached.network, force=force):
            await self._run_delete(cached, current, given, force=force)
        await self._cache.remove(cached.network, cached.attachment.key)

    async def list_of_add(
        self, cached: CachedAttachment, current: NetworkConfigurationList | None
    ) -> NetworkConfigurationList:
        """Return the list as it was used for ADD, or the present one if that is not known any more.

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
                is_needed=partial(self._is_needed, cached, result, force=force),
                on_deleted=store,
                force=force,
            )
        except PluginError:  # it may have deleted a part; with other errors no plugin has, or that is stored already
            await self._store_progress(begun)
            raise

    async def _store_progress(self, begun: CachedAttachment) -> None:
        """Store how far a DEL has come, if that is possible.

        A full disk must keep nobody from freeing an address. At worst a repetition runs again what has completed.
        """
        try:
            await self._cache.put(begun)
        except CacheError as exc:
            log.warning("cache.progress_not_stored", extra={"place": str(exc.place), "reason": exc.reason})

    async def _is_needed(self, cached: CachedAttachment, result: Result | None, plugin: str, *, force: bool) -> bool:
        """Return whether another attachment needs what a plugin would remove by the addresses of `result`.

        One that is being deleted, or is of an earlier boot, needs no rules any more. By force, what cannot be read may.

        Raises:
            CacheError: An attachment cannot be read: it may have one of the addresses.
        """
        addresses = _addresses(result)
        try:
            remembered = await self._cache.list(whole=True)
        except CacheError as exc:
            if not force:
                raise
            log.warning("cache.unreadable", extra={"file": str(exc.place), "reason": exc.reason})
            return True
        for other in remembered:
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
    """With `force`, log what goes wrong instead of raising it, except that others are at work."""
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
