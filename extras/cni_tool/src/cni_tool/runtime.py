# SPDX-License-Identifier: Apache-2.0
"""A runtime with a cache, the counterpart of libcni's `CNIConfig`: its callers need not store anything.

An attachment is cached before its first plugin runs, updated with each plugin's result, and removed when its DEL has
succeeded. So DEL has what it needs even after a crash.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Final, Self

from cni_invoker.documents.attachment import Attachment, AttachmentKey, freeze_keys
from cni_invoker.documents.checks import StrPath
from cni_invoker.documents.lists import NetworkConfigurationList
from cni_invoker.documents.results import Result
from cni_invoker.errors import CniError, GcFailed, InvalidParameter, NetworkBusy, PluginNotFound, VersionUnsupported
from cni_invoker.execution.executor import Observer
from cni_invoker.execution.first_iptables_use import DEFAULT_LOCK_DIR
from cni_invoker.execution.in_process import Answer
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.running_plugins import kill_orphaned_plugins, read_boot_id
from cni_invoker.negotiation import has_gc, require_check
from cni_invoker.runtime import Runtime
from cni_tool.deletion import CachedDeletion, only_logged
from cni_tool.errors import AttachmentExists, CacheDamaged, NotAttached
from cni_tool.file_cache import DEFAULT_CACHE_DIR, FileCache, reported
from cni_tool.record import CachedAttachment, attachment_of_add

_NOTHING_RAN: Final = (InvalidParameter, NetworkBusy, PluginNotFound, VersionUnsupported)
"""What `Runtime.add` raises before the first plugin runs."""


class CachedRuntime:
    """Adds, checks, deletes and lists attachments.

    DEL, CHECK and GC use the list, namespace, arguments and result that were stored at ADD. Every operation locks the
    container against other tasks of this object and other processes with the same cache.

    `open` makes one that is safe beside other programs and after a crash.

    Args:
        runtime: Runs the plugins.
        cache: The cache of attachments.
        boot_id: The kernel's boot ID.
        wait_s: How long to wait for other tasks and processes, in seconds.
    """

    def __init__(
        self, runtime: Runtime, cache: FileCache, *, boot_id: str | None = None, wait_s: float = 120.0
    ) -> None:
        self._runtime = runtime
        self._cache = cache
        self._boot_id = read_boot_id() if boot_id is None else boot_id
        self._deletion = CachedDeletion(runtime, cache, self._boot_id)
        self._wait_s = wait_s

    @classmethod
    def open(
        cls,
        plugin_dirs: StrPath | Iterable[StrPath],
        cache_dir: StrPath = DEFAULT_CACHE_DIR,
        limits: Limits | None = None,
        *,
        lock_dir: StrPath = DEFAULT_LOCK_DIR,
        observer: Observer | None = None,
        environment: Mapping[str, str] = os.environ,
        wait_s: float = 120.0,
        in_process: Mapping[str, Answer] | None = None,
    ) -> Self:
        """Return a runtime that keeps its attachments in files.

        Plugins that a killed program left running are killed: now, without waiting for their end, and before each
        operation those of its container. The first users of iptables chains are serialized on the host.

        Args:
            plugin_dirs: Where plugins are searched, as for `Runtime`.
            cache_dir: Directory of the `FileCache`; with the default, cnitool and libcni share it.
            limits: As for `Runtime`, and so are the others; their defaults are the safe ones.
            lock_dir: Directory of the lock on iptables chains.
            observer: Called with an `Execution` after each one.
            environment: The environment that plugins inherit.
            wait_s: As for this class.
            in_process: The plugins that run in this process, as for `Runtime`.

        Raises:
            InvalidParameter: A plugin directory cannot be a path.
            CacheError: The directory of the cache cannot be read.
        """
        cache = FileCache(cache_dir)
        runtime = Runtime(
            plugin_dirs,
            limits,
            observer=observer,
            environment=environment,
            lock_dir=lock_dir,
            running_dir=cache.running_dir,
            in_process=in_process,
        )
        with reported("read", cache.running_dir):
            kill_orphaned_plugins(cache.running_dir, None, limit_s=0)  # one may hold a lock that others wait for
        return cls(runtime, cache, wait_s=wait_s)

    def _hold(self, network: str, container_id: str) -> AbstractAsyncContextManager[None]:
        return self._cache.hold(network, container_id, wait_s=self._wait_s)

    async def add(self, network: NetworkConfigurationList, attachment: Attachment) -> Result:
        """Add a container to a network and return the last plugin's result.

        An attachment from an earlier boot is deleted first. If a plugin fails, DEL runs before the error is raised. If
        that fails too, a note on the error says so and the attachment stays cached, as it does after a cancellation: it
        needs a `delete`.

        Raises:
            AttachmentExists: It exists already.
            InvalidParameter, PluginNotFound, VersionUnsupported, NetworkBusy: Nothing has been executed.
            PluginError, BadResult: A plugin failed.
            CacheError: It cannot be cached. Nothing has been executed, or everything has been undone.
        """
        network = await self._runtime.negotiate(network)
        async with self._hold(network.name, attachment.container_id):
            earlier = await self._cache.find_readable(network.name, attachment.key)
            if earlier is not None:
                if earlier.boot_id in {"", self._boot_id}:
                    raise AttachmentExists(network.name, attachment.container_id, attachment.ifname)
                await self._deletion.run(earlier)
            cached = CachedAttachment(
                network=network.name,
                attachment=attachment,
                configuration=network,
                result=None,
                boot_id=self._boot_id,
                added_plugins=0,
            )
            await self._cache.put(cached, new=True)

            async def remember(result: Result, added_plugins: int) -> None:
                nonlocal cached
                cached = replace(cached, result=result.document, added_plugins=added_plugins)
                await self._cache.put(cached)

            try:
                return await self._runtime.add(network, attachment, on_result=remember)
            except CniError as exc:
                try:
                    if cached.result is None and isinstance(exc, _NOTHING_RAN):
                        await self._cache.remove(network.name, attachment.key)
                    else:
                        await self._deletion.run(cached)
                except CniError as failed:
                    exc.add_note(f"it could not be undone, so a DEL is still pending: {failed}")
                raise

    async def check(self, network: NetworkConfigurationList, attachment: Attachment) -> None:
        """Ask the plugins whether an attachment is still as ADD left it (CNI SPEC "Checking an attachment").

        Raises:
            VerbUnsupported: The version of its list has no CHECK; nothing has been executed.
            NotAttached: It is not cached, its ADD has no result, or its DEL has begun; nothing has been executed.
            CacheDamaged: The cached record is unreadable; nothing has been executed.
            CniError: As `Runtime.check`.
        """
        async with self._hold(network.name, attachment.container_id):
            cached = await self._cache.find(network.name, attachment.key)
            stored = network if cached is None else cached.configuration
            require_check(stored.cni_version)
            if stored.disable_check:
                return
            if cached is None or cached.result is None or cached.is_cut_off or cached.deleted is not None:
                raise NotAttached(
                    network.name, attachment.container_id, attachment.ifname, delete_pending=cached is not None
                )
            result = Result.from_document(cached.result)
            await self._runtime.check(stored, attachment_of_add(cached, result, attachment), result)

    async def delete(self, network: NetworkConfigurationList, attachment: Attachment, *, force: bool = False) -> None:
        """Delete a container from a network and remove the attachment from the cache.

        A repetition resumes: plugins whose DEL has completed do not run again. An attachment that is not cached, or
        damaged, is deleted with the parameters given here and without a result. If another attachment now has one of
        the addresses, plugins that find their rules by address receive no result and leave its rules.

        Args:
            network: The list.
            attachment: The container.
            force: Forget the attachment even if plugins fail, or its record is of an unknown kind. Failures are logged;
                what those created stays.

        Raises:
            CniError: As `Runtime.delete`, or the cache cannot be read or written; the attachment is still cached.
        """
        async with self._hold(network.name, attachment.container_id):
            cached = await self._cache.find_readable(network.name, attachment.key, force=force)
            if cached is not None:
                await self._deletion.run(cached, attachment, force=force)
            else:
                with only_logged(network.name, force=force):
                    negotiated = await self._runtime.negotiate(network)
                    await self._runtime.delete(negotiated, attachment, None, force=force)
                await self._cache.remove(network.name, attachment.key, force=force)

    async def delete_cached(self, cached: CachedAttachment, *, force: bool = False) -> None:
        """Delete an attachment with only its cached record, which is read again; if it is gone, nothing happens.

        Args:
            cached: The attachment.
            force: As with `delete`.

        Raises:
            CniError: As `delete`.
        """
        key = cached.attachment.key
        async with self._hold(cached.network, key.container_id):
            try:
                found = await self._cache.find(cached.network, key)
            except CacheDamaged:
                found = cached
            if found is not None:
                await self._deletion.run(found, force=force)

    async def gc(self, network: NetworkConfigurationList, valid: Iterable[AttachmentKey]) -> None:
        """Delete every cached attachment to a network that is not valid, then run the plugins' GC.

        The plugins receive the valid attachments, and all that are cached by then. Other operations wait only while the
        plugins' GC runs.

        Args:
            network: The list; with `disableGC` nothing happens.
            valid: The attachments to keep, also those that are being added; an empty set deletes all of them.

        Raises:
            GcFailed: Contains all errors; everything else has been done.
            CacheError: The attachments cannot be listed; nothing has been done.
            TypeError: An item of `valid` is not an `AttachmentKey`; nothing has been done.
        """
        keys = frozenset(freeze_keys(valid))
        if network.disable_gc:
            return
        errors: list[CniError] = []
        for cached in await self._cache.list(network.name):
            if cached.attachment.key not in keys:
                try:
                    await self._delete_stale(cached)
                except CniError as exc:
                    errors.append(exc)
        try:
            if has_gc(network):
                async with self._cache.hold(network.name, None, wait_s=self._wait_s):
                    # A damaged record may be a valid attachment.
                    known = [one.attachment.key for one in await self._cache.list(network.name, whole=True)]
                    await self._runtime.gc(network, (*keys, *known))
        except GcFailed as exc:
            errors.extend(exc.errors)
        except CniError as exc:
            errors.append(exc)
        if errors:
            raise GcFailed(network.name, errors)

    async def _delete_stale(self, cached: CachedAttachment) -> None:
        """Delete an attachment, unless it has changed since it was listed."""
        key = cached.attachment.key
        async with self._hold(cached.network, key.container_id):
            if await self._cache.find(cached.network, key) == cached:
                await self._deletion.run(cached)

    async def status(self, network: NetworkConfigurationList) -> None:
        """Check that a network is ready for containers (STATUS), in the version that ADD would use.

        Raises:
            CniError: As `Runtime.status` and `Runtime.negotiate`.
        """
        await self._runtime.status(await self._runtime.negotiate(network))

    async def attachments(
        self, network: str | None = None, *, container_id: str | None = None, whole: bool = False
    ) -> tuple[CachedAttachment, ...]:
        """Return the cached attachments: all, or those to one network, of one container, or both.

        Args:
            network: The network's name, None for all.
            container_id: The container, None for all.
            whole: Raise an error instead of skipping a record that cannot be read.

        Raises:
            CacheError: The cache, or with `whole` one of its records, cannot be read.
        """
        found = await self._cache.list(network, whole=whole)
        return tuple(cached for cached in found if container_id in {None, cached.attachment.container_id})
