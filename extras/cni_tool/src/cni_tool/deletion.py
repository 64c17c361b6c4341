# SPDX-License-Identifier: Apache-2.0
"""Deletes a cached attachment with the parameters of ADD; a DEL that has failed resumes."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from cni_invoker.deletion import DeleteHooks
from cni_invoker.documents.attachment import Attachment
from cni_invoker.documents.known_plugins import needs_rules
from cni_invoker.documents.results import Result
from cni_invoker.errors import CniError, NetworkBusy, PluginError
from cni_invoker.runtime import Runtime
from cni_tool.errors import CacheError
from cni_tool.file_cache import FileCache
from cni_tool.messages import log_warning
from cni_tool.record import (
    CachedAttachment,
    attachment_of_add,
    find_result_of_add,
)


@dataclass(frozen=True, slots=True)
class CachedDeletion:
    """Deletes cached attachments. The caller holds the container's lock."""

    runtime: Runtime
    cache: FileCache
    boot_id: str

    async def run(self, cached: CachedAttachment, given: Attachment | None = None, *, force: bool = False) -> None:
        """Run the plugins that have not completed DEL, then remove the attachment from the cache.

        `given` is the caller's attachment, for the namespace that libcni before 1.2 has not stored.

        Raises:
            CniError: As `Runtime.delete`, or the cache cannot be read or written; the attachment is still cached.
        """
        is_removed = False
        with only_logged(cached.network, force=force):
            is_removed = await self._run_delete(cached, given, force=force)
        if not is_removed:
            await self.cache.remove(cached.network, cached.attachment.key)

    async def _run_delete(self, cached: CachedAttachment, given: Attachment | None, *, force: bool) -> bool:
        """Run the plugins; return whether the attachment was removed together with the progress of the last one."""
        used, result = cached.configuration, find_result_of_add(cached)
        begun = replace(
            cached,
            attachment=attachment_of_add(cached, result, given),
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
            log_warning(__name__, "cache.progress_not_stored", place=str(exc.place), reason=exc.reason)

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
            log_warning(__name__, "cache.unreadable", file=str(exc.place), reason=exc.reason)
            return True
        for other in cached_attachments:
            if (other.network, other.attachment.key) == (cached.network, cached.attachment.key):
                continue
            if other.deleted is not None or other.boot_id not in {"", self.boot_id}:
                continue
            types = {one.type for one in other.configuration.plugins}
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
        log_warning(__name__, "delete.incomplete", network=network, error=str(exc))


def _addresses(result: Result | None) -> frozenset[str]:
    return frozenset(str(ip.address.ip) for ip in result.ips) if result is not None else frozenset()
