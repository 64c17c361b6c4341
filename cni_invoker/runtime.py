# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The runtime: carries out CNI's operations on whole lists (CNI SPEC §3, what libcni is to Go).

It keeps nothing between calls but what plugins answered to VERSION. Who uses it stores, before ADD, what DEL will need
(the list, the attachment) and, after it, the result; and makes and removes the network namespace.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

from cni_invoker.attachment import Attachment, AttachmentKey, freeze_keys
from cni_invoker.chain import Chain
from cni_invoker.codes import ErrorCode
from cni_invoker.config.lists import NetworkConfigurationList
from cni_invoker.errors import InvalidParameter
from cni_invoker.execution.executions import ExecutionObserver, Executions
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.request import Request, Requests
from cni_invoker.execution.running import RunningPlugins
from cni_invoker.execution.shared_chains import SharedChains
from cni_invoker.execution.trace import TraceContext
from cni_invoker.gate import Gates
from cni_invoker.names import check_argument
from cni_invoker.negotiation import Negotiation
from cni_invoker.plugin_errors import PluginNotFound
from cni_invoker.results.result import Result
from cni_invoker.versions import VersionInfo, require_supported

__all__ = ["Collecting", "Runtime"]


def _no_trace() -> TraceContext | None:
    return None


class Runtime:
    """Adds containers to networks, checks them and deletes them from there; and looks after the networks.

    One per host: it bounds the number of plugins that run at once, keeps operations on one container apart, and GC on a
    network from everything else on it; and it lets the first users of shared iptables chains go one by one. It may be
    used by many tasks at once.

    Args:
        plugin_dirs: Where plugins are looked for; the first directory that has one wins. A relative one is seen from
            the working directory of now.
        limits: Times, sizes and numbers.
        observer: Is told of every execution.
        environment: The environment that plugins inherit.
        find_trace: Is asked before each execution for the span that it belongs to.
        lock_dir: Where runtimes of other processes look for the lock on shared iptables chains, best
            `DEFAULT_LOCK_DIR`; None for none.
        running_dir: Where it is kept which plugins run, so that `kill_orphaned_plugins` finds those of a killed
            process; with a `FileCache`, its `running_dir`. None: nowhere, and such plugins run on.

    Raises:
        InvalidParameter: A plugin directory cannot be a path.
    """

    def __init__(
        self,
        plugin_dirs: Sequence[Path],
        limits: Limits,
        *,
        observer: ExecutionObserver | None = None,
        environment: Mapping[str, str] = os.environ,
        find_trace: Callable[[], TraceContext | None] = _no_trace,
        lock_dir: Path | None = None,
        running_dir: Path | None = None,
    ) -> None:
        # A plugin found as `bridge`, in the directory `.`, would be looked for in PATH when it is executed, by us and
        # by plugins that delegate.
        directories = tuple(directory.absolute() for directory in plugin_dirs)
        for directory in directories:
            _require_path(directory)

        def make_requests() -> Requests:
            return Requests(plugin_dirs=directories, environment=environment, trace=find_trace())

        self._executions = Executions(directories, limits, observer, RunningPlugins(running_dir))
        self._negotiation = Negotiation(self._executions, make_requests)
        self._chain = Chain(self._executions, make_requests, self._negotiation, SharedChains(lock_dir))
        self._gates = Gates(limits.wait_s)

    def find_plugins(self, network: NetworkConfigurationList) -> tuple[Path, ...]:
        """Return the executables of the plugins of `network`, each followed by the one for IPAM if there is one.

        Nothing is executed. Whether what `ipam.type` names is an executable is up to the plugin that reads it.

        Raises:
            PluginNotFound: A plugin of the list is missing.
            VersionUnsupported: The list is of a CNI version this runtime does not speak.
        """
        require_supported(network.cni_version)
        found = []
        for plugin in network.plugins:
            found.append(self._executions.find(plugin.type))
            if plugin.ipam_type is not None:
                with suppress(PluginNotFound):
                    found.append(self._executions.find(plugin.ipam_type))
        return tuple(found)

    def find_plugin(self, plugin_type: str) -> Path:
        """Return the executable that would be run for a plugin.

        Raises:
            PluginNotFound: There is none.
        """
        return self._executions.find(plugin_type)

    async def version(self, plugin_type: str) -> VersionInfo:
        """Return the versions that a plugin speaks (CNI SPEC §3 "VERSION").

        It is asked once, and again when its file has changed.

        Raises:
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout, BadResult: It does not tell.
        """
        return await self._negotiation.version(plugin_type)

    async def negotiate(self, network: NetworkConfigurationList) -> NetworkConfigurationList:
        """Return `network` in the newest version that it offers, and that all its plugins and this runtime speak.

        The plugins for IPAM are plugins too. A list that offers a single version is spoken in it, whatever its plugins
        answer to VERSION. Plugins that do not answer are taken to speak everything: ADD will show.

        Raises:
            NoCommonVersion: There is none; it says who speaks what.
            PluginNotFound, PluginNotStarted: A plugin of the list is missing, or does not run.
        """
        return await self._negotiation.negotiate(network)

    async def add(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        *,
        on_result: Callable[[Result], Awaitable[None]] | None = None,
        prev_result: Result | None = None,
    ) -> Result:
        """Add a container to a network and return the last plugin's result (CNI SPEC "Adding an attachment").

        The plugins run in their order, each told the result of the one before. The first failure ends it, and so does
        cancellation. A `delete` is owed from the moment this is called, however it ends: also for plugins that failed,
        or have not run at all.

        Args:
            network: The list, best as `negotiate` returned it.
            attachment: The container.
            on_result: Is awaited with each plugin's result before the next one runs, so that it can be stored: a DEL
                that follows a failure, or a crash, needs the last one. What it raises ends the ADD.
            prev_result: What the first plugin is told, where the list is the end of one whose beginning has run.

        Raises:
            PluginNotFound, VersionUnsupported, InvalidParameter, NetworkBusy: Nothing has been executed.
            PluginNotStarted, PluginFailed, PluginTimeout, BadResult: About one plugin; those after it have not run.
        """
        self.find_plugins(network)
        _require_netns(attachment)
        for key, value in attachment.args:
            check_argument(key, value)
        async with self._gates.attachment(network.name, attachment.container_id):
            return await self._chain.add(network, attachment, on_result, prev_result)

    def requests_for_add(self, network: NetworkConfigurationList, attachment: Attachment) -> tuple[Request, ...]:
        """Return what the plugins would be given for ADD, but the results of those before them; nothing is executed."""
        return self._chain.requests_for_add(network, attachment)

    async def check(self, network: NetworkConfigurationList, attachment: Attachment, result: Result | None) -> None:
        """See whether an attachment is still as ADD left it (CNI SPEC "Checking an attachment").

        The plugins run in their order, up to the first that finds something. Nothing runs if the list forbids it.

        Args:
            network: The list that was used for ADD.
            attachment: What was given to ADD.
            result: What ADD returned.

        Raises:
            VerbUnsupported: The list's version has no CHECK.
            BadResult: The result cannot be told in the list's version.
            InvalidParameter, NetworkBusy: Nothing has been executed.
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout: About one plugin.
        """
        _require_netns(attachment)
        async with self._gates.attachment(network.name, attachment.container_id):
            await self._chain.check(network, attachment, result)

    async def delete(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        result: Result | None,
        *,
        added_plugins: int | None = None,
        deleted: Collection[int] = (),
        is_needed: Callable[[str], Awaitable[bool]] | None = None,
        restore: Callable[[], Awaitable[object]] | None = None,
        on_deleted: Callable[[frozenset[int]], Awaitable[None]] | None = None,
        place: Callable[[], AbstractAsyncContextManager[None]] | None = None,
        force: bool = False,
    ) -> None:
        """Delete a container from a network (CNI SPEC "Deleting an attachment").

        The plugins run in reverse order. One that fails is tried once more, because some fail at what is missing
        already and are done then; if it fails again, those before it do not run: they would free the address while
        rules for it are still there. It may be repeated, and should be until it succeeds.

        A repetition must not run again what has completed: as soon as the address is free another container may get
        it, and a DEL that finds its rules by the address would remove those of that container. So the caller stores
        what `on_deleted` receives, and gives it as `deleted` the next time.

        A plugin whose ADD has not completed does not keep the others from undoing what they did: they run, and then
        its error is raised, because nobody knows what it has made. Only by the codes 1, 2 and 7 it says that it rejects
        the request as such, and has made nothing. Plugins that have never been started may fail. Code 3 says of any
        plugin that there is nothing to delete. The module `deletion` has the whole rule.

        Args:
            network: The list that was used for ADD, not the one that may be on disk now.
            attachment: What was given to ADD.
            result: What ADD returned, or the last that it told on its way; None if no plugin came to its end. One that
                cannot be told in the list's version is not told.
            added_plugins: How many plugins came to the end of their ADD, None for all.
            deleted: Indexes in the list of the plugins whose DEL has completed before; they do not run again.
            is_needed: Awaited with the type of a plugin that finds its rules by the address alone (`firewall`), just
                before each execution of it: whether another container needs these rules by now (`needs_rules`). The
                plugin then receives no result, and leaves them as they are. What it raises is raised; that plugin and
                those before it have not run then.
            restore: Called before a plugin that failed is tried once more: puts back the link that it may have deleted
                and finds the rest of its work by (bridge, ptp: masquerading). What it raises is raised.
            on_deleted: Awaited after each plugin whose DEL has completed, with the indexes of all of these, those in
                `deleted` included. What it raises is raised, and the plugins before that one have not run.
            place: Called before each execution: gives what is held during it, instead of one of the runtime's places
                for DEL. So a caller that deletes in the background does not keep others waiting with plugins that hang.
            force: Run all plugins, whichever fails. Failures are logged, not raised: what those plugins made stays.

        Raises:
            NetworkBusy: Nothing has been executed.
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout: About one plugin. If its ADD has completed,
                those before it in the list have not run; else all have run. Something of it may be left: keep what is
                stored of the attachment, and repeat this.
        """
        async with self._gates.attachment(network.name, attachment.container_id):
            await self._chain.delete(
                network,
                attachment,
                result,
                added_plugins=added_plugins,
                deleted=deleted,
                is_needed=is_needed,
                restore=restore,
                on_deleted=on_deleted,
                place=place,
                force=force,
            )

    async def gc(self, network: NetworkConfigurationList, valid: Iterable[AttachmentKey]) -> None:
        """Have the plugins of a network clean up all that belongs to no attachment (CNI SPEC "Garbage collection").

        Nothing else happens on the network meanwhile. It is no substitute for `delete`.

        Args:
            network: The list.
            valid: All attachments there are on the network. Whoever is not in it loses what he has: where attachments
                come and go, find out what is valid inside `collecting`.

        Raises:
            GcFailed: Plugins failed; all the others have run.
            NetworkBusy: Nothing has been executed.
            TypeError: Something in `valid` is no `AttachmentKey`; nothing has been executed.
        """
        keys = freeze_keys(valid)
        async with self.collecting(network) as collecting:
            await collecting.gc(keys)

    @asynccontextmanager
    async def collecting(
        self, network: NetworkConfigurationList, *, wait_s: float | None = None
    ) -> AsyncIterator["Collecting"]:
        """Keep everybody else off a network, to find out what is valid, and then let GC run.

        In the body only what it yields can be used on that network; the other methods of the runtime would wait for
        the body's end.

        Args:
            network: The list.
            wait_s: How long to wait for others, in seconds, and so how long those are kept waiting that come
                meanwhile; None for that of the limits.

        Raises:
            NetworkBusy: Others did not end in time; the body has not run.
        """
        async with self._gates.alone(network.name, wait_s):
            yield Collecting(self._chain, network)

    async def status(self, network: NetworkConfigurationList) -> None:
        """See whether a network can take containers (CNI SPEC "Status").

        Args:
            network: The list, negotiated. Plugins know STATUS from 1.1.0 on; before, they are only looked for.

        Raises:
            PluginFailed: The first plugin that cannot, with code 50 or 51.
            NoCommonVersion: A plugin does not speak the list's version, so that ADD would fail.
            VersionUnsupported: This runtime does not.
            PluginNotFound, PluginNotStarted, PluginTimeout: About one plugin; those after it have not run.
        """
        self.find_plugins(network)
        await self._chain.status(network)


class Collecting:
    """What may be done to a network while everybody else is kept off it; made by `Runtime.collecting`."""

    def __init__(self, chain: Chain, network: NetworkConfigurationList) -> None:
        self._chain = chain
        self._network = network

    async def gc(self, valid: Iterable[AttachmentKey]) -> None:
        """Have the plugins clean up all that belongs to no attachment, as `Runtime.gc`."""
        await self._chain.gc(self._network, freeze_keys(valid))


def _require_path(directory: Path) -> None:
    """Refuse what no search for a plugin could look into, ours or that of a plugin for its IPAM plugin."""
    try:
        is_path = b"\0" not in os.fsencode(directory)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise InvalidParameter("plugin directory", str(directory), "it is no path", code=ErrorCode.INVALID_ENVIRONMENT)
    if os.pathsep in str(directory):
        reason = f"it has a {os.pathsep!r}, which is what separates directories in CNI_PATH; give it another name"
        raise InvalidParameter("plugin directory", str(directory), reason, code=ErrorCode.INVALID_ENVIRONMENT)


def _require_netns(attachment: Attachment) -> None:
    """Refuse what only DEL may be asked for: a container without a network namespace."""
    if not attachment.netns:
        raise InvalidParameter("network namespace", "", "it is empty", code=ErrorCode.INVALID_ENVIRONMENT)
