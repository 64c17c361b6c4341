# SPDX-License-Identifier: Apache-2.0
"""The runtime: runs CNI's operations on whole lists (CNI SPEC §3; the counterpart of libcni).

It stores nothing on disk except which plugins are running. The caller creates and removes the network namespace, stores
what DEL will need (the list and the attachment) before ADD, and stores the result after it.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from cni_invoker.deletion import DeleteHooks, delete_in_reverse, result_for_delete
from cni_invoker.documents.attachment import Attachment, AttachmentKey, freeze_keys
from cni_invoker.documents.checks import StrPath, as_paths, check_arguments, check_netns, check_plugin_dir
from cni_invoker.documents.lists import NetworkConfigurationList, PluginConfiguration
from cni_invoker.documents.request import Request, Requests
from cni_invoker.documents.results import Result, parse_result
from cni_invoker.documents.versions import Verb, VersionInfo, is_at_least, require_supported
from cni_invoker.errors import CniError, GcFailed
from cni_invoker.execution.executor import Executor, Observer
from cni_invoker.execution.first_iptables_use import FirstIptablesUse
from cni_invoker.execution.in_process import Answer
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.running_plugins import RunningPlugins
from cni_invoker.negotiation import Negotiation, choose_version, has_gc, require_check
from cni_invoker.waiting import TaskLocks, run_in_thread

_LARGE_BYTES: Final = 64 << 10
"""A larger result is parsed in a thread, because that takes tens of milliseconds."""


class Runtime:
    """Adds containers to networks, checks and deletes them, and runs STATUS and GC.

    Use one runtime per host, for all tasks of an event loop. It limits how many plugins run at once, and
    serializes operations on one container, GC on a network, and the first users of shared iptables chains.

    An operation raises `InvalidParameter` or `NetworkBusy` before anything has been executed. `PluginError` and
    `BadResult` mean that one plugin failed; those after it have not run, if the operation does not say more.

    Args:
        plugin_dirs: Where plugins are searched, one directory or several; the first one that has the plugin wins.
            Relative paths are resolved now.
        limits: Timeouts, sizes and counts; None: the defaults of `Limits`.
        observer: Called with an `Execution` after each one.
        environment: The environment that plugins inherit.
        lock_dir: Directory of the lock on shared iptables chains, normally `DEFAULT_LOCK_DIR`, so that all runtimes of
            the host share it. None: no lock.
        running_dir: Where the running plugins are recorded, so that those of a killed process can be killed; with a
            `cni_tool.FileCache`, use its `running_dir`. None: not recorded, and such plugins keep running.
        in_process: The plugins that run in this process, by type, e.g. `installed_plugins()`; executables of these
            types are not used. What they get and give is that of an executable, but they cannot be killed: after a
            timeout or a cancellation the call goes on in its thread, and the next one for the container waits for it.

    Raises:
        InvalidParameter: A plugin directory cannot be a path.
    """

    def __init__(
        self,
        plugin_dirs: StrPath | Iterable[StrPath],
        limits: Limits | None = None,
        *,
        observer: Observer | None = None,
        environment: Mapping[str, str] = os.environ,
        lock_dir: StrPath | None = None,
        running_dir: StrPath | None = None,
        in_process: Mapping[str, Answer] | None = None,
    ) -> None:
        limits = limits or Limits()
        # A plugin found as `bridge` in the directory `.` would be searched in PATH when it is executed, by us and by
        # plugins that delegate.
        directories = tuple(directory.absolute() for directory in as_paths(plugin_dirs))
        for directory in directories:
            check_plugin_dir(directory)

        self._requests = Requests(plugin_dirs=directories, environment=environment)
        running = RunningPlugins(None if running_dir is None else Path(running_dir))
        self._executor = Executor(directories, limits, observer, running, in_process)
        self._negotiation = Negotiation(self._executor, self._requests)
        self._first_iptables_use = FirstIptablesUse(None if lock_dir is None else Path(lock_dir))
        self._locks = TaskLocks()
        self._limits = limits

    def find_plugin(self, plugin_type: str) -> Path | None:
        """Return the executable of a plugin, or raise `PluginNotFound`; None if it runs in this process."""
        return self._executor.find(plugin_type)

    def find_executable(self, plugin_type: str) -> Path:
        """Return the executable of a plugin that another plugin executes, even if this process has the plugin."""
        return self._executor.find_executable(plugin_type)

    def _require_plugins(self, network: NetworkConfigurationList) -> None:
        """Raise `VersionUnsupported` for another version than ours, `PluginNotFound` if any plugin is missing."""
        require_supported(network.cni_version)
        for plugin in network.plugins:
            self._executor.find(plugin.type)

    async def version(self, plugin_type: str) -> VersionInfo:
        """Return the CNI versions that a plugin supports (CNI SPEC §3 "VERSION"), cached until its file changes."""
        return await self._negotiation.version(plugin_type)

    async def negotiate(self, network: NetworkConfigurationList) -> NetworkConfigurationList:
        """Return `network` in the newest version that it offers and that all its plugins and this runtime support.

        IPAM plugins count as well. A list that offers a single version keeps it, and no plugin is asked. A plugin
        without a usable answer is assumed to support every version.

        Raises:
            VersionUnsupported: There is no such version; the error lists what each plugin supports.
            PluginNotFound, PluginNotStarted: A plugin of the list is missing or cannot be executed.
        """
        return await self._negotiation.negotiate(network)

    async def add(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        *,
        on_result: Callable[[Result, int], Awaitable[None]] | None = None,
        prev_result: Result | None = None,
        skipped: Collection[int] = (),
        in_slot: bool = True,
    ) -> Result:
        """Add a container to a network and return the last plugin's result (CNI SPEC "Adding an attachment").

        The plugins run in order; each receives the result of the one before. The first failure ends the ADD, and so
        does cancellation. However it ended, the caller must complete a `delete`.

        Args:
            network: The list, preferably as returned by `negotiate`.
            attachment: Its namespace must exist.
            on_result: Awaited with each plugin's result before the next plugin runs, and with the `added_plugins` of
                `delete`, so that the caller can store both: after a failure or a crash, DEL needs the last ones. An
                exception ends the ADD.
            prev_result: What the first plugin receives as `prevResult`, if earlier plugins of the list have run.
            skipped: The positions of plugins, not the first, that need not run: their ADD would only print the previous
                result. They must be there all the same.
            in_slot: Whether an execution takes one of the runtime's slots; False for a caller that adds in the
                background.

        Raises:
            PluginNotFound, VersionUnsupported: Nothing has been executed.
        """
        self._require_plugins(network)
        check_netns(attachment.netns, is_needed=True)
        check_arguments(attachment.args)
        async with self._locks.hold(network.name, attachment.container_id, wait_s=self._limits.wait_s):
            result = prev_result
            running = [index for index in range(len(network.plugins)) if index not in skipped]
            for index, following in zip(running, (*running[1:], len(network.plugins)), strict=True):
                result = await self._add(network, network.plugins[index], attachment, result, in_slot=in_slot)
                if on_result is not None:
                    await on_result(result, following)
        assert result is not None  # noqa: S101  # a list has at least one plugin
        return result

    async def _add(
        self,
        network: NetworkConfigurationList,
        plugin: PluginConfiguration,
        attachment: Attachment,
        prev_result: Result | None,
        *,
        in_slot: bool,
    ) -> Result:
        received = None if prev_result is None else prev_result.converted(network.cni_version)
        request = self._requests.attachment(Verb.ADD, network, plugin, attachment, received)

        @asynccontextmanager
        async def turn() -> AsyncIterator[None]:
            async with (
                self._first_iptables_use.serialize_first_add(plugin, attachment, received),
                self._executor.slot_of(request) if in_slot else nullcontext(),
            ):
                yield

        def undo() -> Request:
            kept = result_for_delete(network.cni_version, received)
            return self._requests.attachment(Verb.DEL, network, plugin, attachment, kept)

        output = await self._executor.run(request, turn, undo=undo)
        entries = self._limits.result_entries
        parse = partial(output.parse, partial(parse_result, cni_version=network.cni_version, entries=entries))
        return parse() if len(output.stdout) <= _LARGE_BYTES else await run_in_thread(parse)

    async def check(self, network: NetworkConfigurationList, attachment: Attachment, result: Result | None) -> None:
        """Check that an attachment is still as ADD left it (CNI SPEC "Checking an attachment").

        The plugins run in order until one fails; none if the list has `disableCheck`. List, attachment and result are
        those of ADD.

        Raises:
            VerbUnsupported: The list's version has no CHECK.
            BadResult: The result cannot be converted to the list's version.
        """
        check_netns(attachment.netns, is_needed=True)
        async with self._locks.hold(network.name, attachment.container_id, wait_s=self._limits.wait_s):
            require_check(network.cni_version)
            if network.disable_check:
                return
            received = None if result is None else result.converted(network.cni_version)
            for plugin in network.plugins:
                request = self._requests.attachment(Verb.CHECK, network, plugin, attachment, received)
                await self._executor.run(request)

    async def delete(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        result: Result | None,
        *,
        added_plugins: int | None = None,
        deleted: Collection[int] = (),
        on_deleted: Callable[[frozenset[int]], Awaitable[None]] | None = None,
        hooks: DeleteHooks | None = None,
        force: bool = False,
    ) -> None:
        """Delete a container from a network (CNI SPEC "Deleting an attachment").

        The plugins run in reverse order. A plugin that fails is run once more, because some fail on something that is
        already gone and then succeed. If it fails again, those before it in the list do not run: they would free the
        address while rules for it still exist. If its ADD had not completed, they do run, and then the error is raised
        (the whole rule: module `deletion`). Repeat the call until it succeeds.

        A repetition must not run plugins that have completed: another container may have the address by now, and a DEL
        that finds its rules by address would remove that container's. So store what `on_deleted` receives, and pass it
        as `deleted`.

        Args:
            network: The list that was used for ADD, which may differ from the file on disk now.
            attachment: The attachment that was passed to ADD.
            result: The result of ADD, or the last one that `on_result` received; None if no plugin completed. A result
                that cannot be converted to the list's version is not passed on.
            added_plugins: How many plugins completed ADD; None for all.
            deleted: Indexes of the plugins whose DEL has completed.
            on_deleted: Awaited after each DEL that has completed, with the indexes of all, including `deleted`. Its
                exception ends the operation.
            hooks: For a caller that manages links or rules itself (`cni_invoker.advanced.DeleteHooks`).
            force: Run all plugins whatever fails. Failures are logged, not raised; what those plugins created stays.
        """
        async with self._locks.hold(network.name, attachment.container_id, wait_s=self._limits.wait_s):
            await delete_in_reverse(
                self._executor,
                self._requests,
                network,
                attachment,
                result,
                added_plugins=added_plugins,
                deleted=deleted,
                on_deleted=on_deleted,
                hooks=hooks or DeleteHooks(),
                force=force,
            )

    async def gc(self, network: NetworkConfigurationList, valid: Iterable[AttachmentKey]) -> None:
        """Have a network's plugins clean up everything that belongs to no attachment (CNI SPEC "Garbage collection").

        No other operation runs on the network meanwhile. GC does not replace `delete`.

        Plugins without GC are left out. So are those whose IPAM plugin has none, because they delegate GC to it. An
        older plugin would answer with whatever error comes first (code 3, measured with 1.1.1). A plugin that does not
        report its versions counts as failed.

        `valid` are all attachments of the network; plugins delete the resources of any other.

        Raises:
            GcFailed: Plugins failed; all the others have run.
            TypeError: An item of `valid` is not an `AttachmentKey`; nothing has been executed.
        """
        keys, errors = freeze_keys(valid), list[CniError]()
        async with self._locks.hold(network.name, None, wait_s=self._limits.wait_s):
            for plugin in network.plugins if has_gc(network) else ():
                try:
                    own = await self._negotiation.version(plugin.type)
                    answers = await self._negotiation.answers(plugin)
                    if all(network.cni_version in info.supported for info in (own, *answers.values())):
                        await self._executor.run(self._requests.gc(network, plugin, keys))
                except CniError as exc:
                    errors.append(exc)
        if errors:
            raise GcFailed(network.name, errors)

    async def status(self, network: NetworkConfigurationList) -> None:
        """Check that a network, a negotiated list, is ready for containers (CNI SPEC "Status").

        STATUS exists since 1.1.0; for older lists this only checks that the plugins exist.

        Raises:
            PluginFailed: The first plugin that is not ready (code 50 or 51), cannot run, or does not have the verb.
            VersionUnsupported: This runtime or a plugin does not support the list's version, so ADD would fail.
        """
        self._require_plugins(network)
        if not is_at_least(network.cni_version, Verb.STATUS.since):
            return
        for plugin in network.plugins:
            choose_version(network, await self._negotiation.answers(plugin))
            await self._executor.run(self._requests.status(network, plugin))
