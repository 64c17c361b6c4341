# SPDX-License-Identifier: Apache-2.0
"""The runtime: runs CNI's operations on whole lists (CNI SPEC §3; the counterpart of libcni).

It stores nothing on disk except which plugins are running. The caller creates and removes the network namespace, stores
what DEL will need (the list and the attachment) before ADD, and stores the result after it.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from inspect import iscoroutinefunction
from pathlib import Path

from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.errors import PluginNotFound
from cni_invoker.execution.executor import ExecutionObserver, Executor
from cni_invoker.execution.first_iptables_use import FirstIptablesUse
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.plugin_exec import PluginExec
from cni_invoker.execution.request import Requests, TraceContext
from cni_invoker.execution.running_files import RunningPlugins
from cni_invoker.inputs.attachment import Attachment, AttachmentKey, freeze_keys
from cni_invoker.inputs.given import StrPath, as_path, as_paths, require_type
from cni_invoker.inputs.names import check_arguments, check_netns, check_plugin_dir
from cni_invoker.locks import TaskLocks
from cni_invoker.operations.arguments import require_inputs, require_network, require_result
from cni_invoker.operations.chain import Chain
from cni_invoker.operations.deletion import DeleteHooks
from cni_invoker.operations.negotiation import Negotiation
from cni_invoker.results.result import Result
from cni_invoker.versions import VersionInfo, require_supported

__all__ = ["Collecting", "Runtime"]


class Runtime:
    """Adds containers to networks, checks and deletes them, and runs STATUS and GC.

    Use one runtime per host. It limits how many plugins run at once, serializes operations on one container, keeps GC
    apart from all other operations on a network, and serializes the first users of shared iptables chains. Many tasks
    may use it at the same time, also in several event loops and threads.

    A parameter of another type is a `TypeError`, raised before anything runs.

    Args:
        plugin_dirs: Where plugins are searched; the first directory that has the plugin wins. A single one need not be
            in a list. Relative paths are resolved now.
        limits: Timeouts, sizes and counts; None: the defaults of `Limits`.
        observer: Called after every execution.
        environment: The environment that plugins inherit.
        find_trace: Called before each execution; returns the span that the execution belongs to.
        lock_dir: Directory of the lock on shared iptables chains, which all runtimes of the host should share;
            normally `DEFAULT_LOCK_DIR`. None: no lock.
        running_dir: Where the running plugins are recorded, so that `kill_orphaned_plugins` finds those of a killed
            process; with a `FileCache`, use its `running_dir`. None: not recorded, and such plugins keep running.
        plugin_exec: Finds and runs plugins in another way (`cni_invoker.advanced`); None: on this host.
        has_chain: Returns whether the host has an iptables chain: called with 4 or 6, a table and a chain, before and
            after ADDs of plugins that share chains. So the first ADD after an operator has removed it takes the lock
            again. None: a chain that was created is assumed to exist.

    Raises:
        InvalidParameter: A plugin directory cannot be a path.
    """

    def __init__(
        self,
        plugin_dirs: StrPath | Iterable[StrPath],
        limits: Limits | None = None,
        *,
        observer: ExecutionObserver | None = None,
        environment: Mapping[str, str] = os.environ,
        find_trace: Callable[[], TraceContext | None] = lambda: None,
        lock_dir: StrPath | None = None,
        running_dir: StrPath | None = None,
        plugin_exec: PluginExec | None = None,
        has_chain: Callable[[int, str, str], bool] | None = None,
    ) -> None:
        limits = Limits() if limits is None else require_type(limits, Limits, "limits")
        # A plugin found as `bridge` in the directory `.` would be searched in PATH when it is executed, by us and by
        # plugins that delegate.
        directories = tuple(directory.absolute() for directory in as_paths(plugin_dirs, "plugin_dirs"))
        for directory in directories:
            check_plugin_dir(directory)

        requests = Requests(plugin_dirs=directories, environment=environment, find_trace=find_trace)
        running = RunningPlugins(_find_path(running_dir, "running_dir"))
        if plugin_exec is not None and not iscoroutinefunction(
            require_type(plugin_exec, PluginExec, "plugin_exec").run
        ):
            raise TypeError(
                f"run of plugin_exec must be `async def`, as that of PluginExec; {plugin_exec!r:.100} has another"
            )
        self._executor = Executor(directories, limits, observer, running, plugin_exec)
        self._negotiation = Negotiation(self._executor, requests)
        first_iptables_use = FirstIptablesUse(_find_path(lock_dir, "lock_dir"), has_chain=has_chain)
        self._chain = Chain(self._executor, requests, self._negotiation, first_iptables_use)
        self._locks = TaskLocks(limits.wait_s)

    def find_plugins(self, network: NetworkConfigurationList) -> tuple[Path, ...]:
        """Return the executables of the plugins of `network`, each followed by its IPAM plugin's if there is one.

        Nothing is executed. A missing IPAM plugin is not an error: the plugin decides what `ipam.type` means.

        Raises:
            PluginNotFound: A plugin of the list is missing.
            VersionUnsupported: This runtime does not support the list's CNI version.
        """
        require_network(network)
        require_supported(network.cni_version)
        found = []
        for plugin in network.plugins:
            found.append(self._executor.find(plugin.type))
            if plugin.ipam_type is not None:
                with suppress(PluginNotFound):
                    found.append(self._executor.find(plugin.ipam_type))
        return tuple(found)

    def find_plugin(self, plugin_type: str) -> Path:
        """Return the executable of a plugin.

        Raises:
            PluginNotFound: No plugin directory has it.
        """
        return self._executor.find(plugin_type)

    async def version(self, plugin_type: str) -> VersionInfo:
        """Return the CNI versions that a plugin supports (CNI SPEC §3 "VERSION").

        The answer is cached until the plugin's file changes.

        Raises:
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout, BadResult: The plugin gave no usable answer.
        """
        return await self._negotiation.version(plugin_type)

    async def negotiate(self, network: NetworkConfigurationList) -> NetworkConfigurationList:
        """Return `network` in the newest version that it offers and that all its plugins and this runtime support.

        IPAM plugins count as well. A list that offers a single version keeps it, whatever its plugins answer to
        VERSION. A plugin that gives no usable answer is assumed to support every version; otherwise ADD will fail.

        Raises:
            NoCommonVersion: There is no such version; the error lists what each plugin supports.
            PluginNotFound, PluginNotStarted: A plugin of the list is missing or cannot be executed.
        """
        require_network(network)
        return await self._negotiation.negotiate(network)

    async def add(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        *,
        on_result: Callable[[Result], Awaitable[None]] | None = None,
        prev_result: Result | None = None,
        slot: Callable[[], AbstractAsyncContextManager[None]] | None = None,
    ) -> Result:
        """Add a container to a network and return the last plugin's result (CNI SPEC "Adding an attachment").

        The plugins run in order; each receives the result of the one before. The first failure ends the ADD, and so
        does cancellation. Once this method was called the caller must complete a `delete`, however the ADD ended, also
        if plugins failed or none has run.

        Args:
            network: The list, preferably as returned by `negotiate`.
            attachment: The container.
            on_result: Awaited with each plugin's result before the next plugin runs, so that the caller can store it:
                after a failure or a crash, DEL needs the last one. An exception ends the ADD.
            prev_result: What the first plugin receives as `prevResult`, if earlier plugins of the list have run.
            slot: Returns the slot that is held during an execution, instead of one of the runtime's, for a caller that
                adds in the background.

        Raises:
            PluginNotFound, VersionUnsupported, InvalidParameter, NetworkBusy: Nothing has been executed.
            PluginNotStarted, PluginFailed, PluginTimeout, BadResult: One plugin failed; those after it have not run.
        """
        require_inputs(network, attachment)
        require_result(prev_result, "prev_result")
        self.find_plugins(network)
        check_netns(attachment.netns, is_needed=True)
        check_arguments(attachment.args)
        async with self._locks.attachment(network.name, attachment.container_id):
            return await self._chain.add(network, attachment, on_result, prev_result, slot)

    async def check(self, network: NetworkConfigurationList, attachment: Attachment, result: Result | None) -> None:
        """Check that an attachment is still as ADD left it (CNI SPEC "Checking an attachment").

        The plugins run in order until one fails. None runs if the list has `disableCheck`.

        Args:
            network: The list that was used for ADD.
            attachment: The attachment that was passed to ADD.
            result: The result of ADD.

        Raises:
            VerbUnsupported: The list's version has no CHECK.
            BadResult: The result cannot be converted to the list's version.
            InvalidParameter, NetworkBusy: Nothing has been executed.
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout: One plugin failed.
        """
        require_inputs(network, attachment)
        require_result(result, "result")
        check_netns(attachment.netns, is_needed=True)
        async with self._locks.attachment(network.name, attachment.container_id):
            await self._chain.check(network, attachment, result)

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
        already gone and then succeed. If it fails again, the plugins before it in the list do not run: they would free
        the address while rules for it still exist. The call may be repeated, and should be until it succeeds.

        A repetition must not run plugins that have already completed. Once the address is free another container may
        receive it, and a DEL that finds its rules by address would remove the rules of that container. The caller
        therefore stores what `on_deleted` receives and passes it as `deleted` the next time.

        If a plugin's ADD has not completed, its failure does not stop the others: they run, and then the error is
        raised, because it is unknown what the plugin has created. The module `deletion` states the whole rule.

        Args:
            network: The list that was used for ADD, which may differ from the file on disk now.
            attachment: The attachment that was passed to ADD.
            result: The result of ADD, or the last one that `on_result` received; None if no plugin completed. A result
                that cannot be converted to the list's version is not passed on.
            added_plugins: How many plugins completed ADD; None for all.
            deleted: Indexes of the plugins whose DEL has already completed; they do not run again.
            on_deleted: Awaited after each plugin whose DEL has completed, with the indexes of all completed plugins,
                including `deleted`. Its exception is raised, and the plugins before that one have not run.
            hooks: For a caller that manages links or rules itself (`cni_invoker.advanced.DeleteHooks`).
            force: Run all plugins whatever fails. Failures are logged, not raised; what those plugins created stays.

        Raises:
            NetworkBusy: Nothing has been executed.
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout: One plugin failed. If its ADD had completed,
                the plugins before it have not run; otherwise all have run. It may have left something behind: keep the
                stored attachment and repeat the call.
        """
        require_inputs(network, attachment)
        require_result(result, "result")
        async with self._locks.attachment(network.name, attachment.container_id):
            await self._chain.delete(
                network,
                attachment,
                result,
                added_plugins=added_plugins,
                deleted=deleted,
                on_deleted=on_deleted,
                hooks=DeleteHooks() if hooks is None else require_type(hooks, DeleteHooks, "hooks"),
                force=force,
            )

    async def gc(self, network: NetworkConfigurationList, valid: Iterable[AttachmentKey]) -> None:
        """Have a network's plugins clean up everything that belongs to no attachment (CNI SPEC "Garbage collection").

        No other operation runs on the network meanwhile. GC does not replace `delete`.

        Args:
            network: The list.
            valid: All attachments of the network. Plugins delete the resources of any other attachment. If attachments
                can be added or deleted concurrently, collect the valid ones inside `collecting`.

        Raises:
            GcFailed: Plugins failed; all the others have run.
            NetworkBusy: Nothing has been executed.
            TypeError: An item of `valid` is not an `AttachmentKey`; nothing has been executed.
        """
        keys = freeze_keys(valid)
        async with self.collecting(network) as collecting:
            await collecting.gc(keys)

    @asynccontextmanager
    async def collecting(
        self, network: NetworkConfigurationList, *, wait_s: float | None = None
    ) -> AsyncIterator["Collecting"]:
        """Block all other operations on a network while the caller collects the valid attachments and runs GC.

        The body may use only the yielded object on that network; other methods of the runtime would wait for the end
        of the body.

        Args:
            network: The list.
            wait_s: How long to wait for running operations, in seconds. New operations wait meanwhile. None: as long as
                the limits say.

        Raises:
            NetworkBusy: Other operations did not end in time; the body has not run.
        """
        require_network(network)
        async with self._locks.exclusive(network.name, wait_s):
            yield Collecting(self._chain, network)

    async def status(self, network: NetworkConfigurationList) -> None:
        """Check that a network is ready for containers (CNI SPEC "Status").

        Args:
            network: The negotiated list. STATUS exists since 1.1.0; for older lists this only checks that the plugins
                exist.

        Raises:
            PluginFailed: The first plugin that is not ready, with code 50 or 51. Another code, such as 3, is that of a
                plugin that cannot run, or that does not have the verb.
            NoCommonVersion: A plugin does not support the list's version, so ADD would fail.
            VersionUnsupported: This runtime does not support it.
            PluginNotFound, PluginNotStarted, PluginTimeout: One plugin failed; those after it have not run.
        """
        self.find_plugins(network)
        await self._chain.status(network)


class Collecting:
    """The operations that are possible while a network is blocked for all others; created by `Runtime.collecting`."""

    def __init__(self, chain: Chain, network: NetworkConfigurationList) -> None:
        self._chain = chain
        self._network = network

    async def gc(self, valid: Iterable[AttachmentKey]) -> None:
        """Have the plugins clean up everything that belongs to no attachment, like `Runtime.gc`."""
        await self._chain.gc(self._network, freeze_keys(valid))


def _find_path(path: StrPath | None, what: str) -> Path | None:
    return None if path is None else as_path(path, what)
