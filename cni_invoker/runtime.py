# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The runtime: carries out CNI's operations on whole lists (CNI SPEC §3, what libcni is to Go).

It keeps nothing between calls. Who uses it stores, before ADD, what DEL will need (the list, the attachment) and, after
it, the result; serializes the operations on one container; and makes and removes the network namespace.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import Protocol

from cni_invoker.attachment import Attachment
from cni_invoker.config import NetworkConfigurationList, PluginConfiguration
from cni_invoker.errors import BadResult, PluginError, PluginFailed, PluginTimeout
from cni_invoker.execute import Output, execute
from cni_invoker.limits import Limits
from cni_invoker.plugins import find_plugin
from cni_invoker.request import Request, make_request
from cni_invoker.result import Result, parse_result
from cni_invoker.shared_chains import SharedChains
from cni_invoker.verbs import Verb
from cni_invoker.versions import is_at_least, require_supported

__all__ = ["ExecutionObserver", "Runtime"]

log = logging.getLogger(__name__)


class ExecutionObserver(Protocol):
    """Learns what plugins cost. Called in the task that waits for the plugin, after each execution, good or bad."""

    def on_execution(self, plugin: str, verb: Verb, duration_s: float) -> None:
        """Take note that `plugin` was executed for `verb` and took `duration_s` seconds, waiting not included."""


class Runtime:
    """Adds containers to networks and deletes them from there.

    One per host: it bounds the number of plugins that run at once, and keeps the first users of shared iptables chains
    apart. It may be used by many tasks at once.

    Args:
        plugin_dirs: Where plugins are looked for; the first directory that has one wins.
        limits: Times, sizes and numbers.
        observer: Is told of every execution.
        environment: The environment that plugins inherit.
    """

    def __init__(
        self,
        plugin_dirs: Sequence[Path],
        limits: Limits,
        *,
        observer: ExecutionObserver | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._plugin_dirs = tuple(plugin_dirs)
        self._limits = limits
        self._observer = observer
        self._environment = environment
        self._slots = asyncio.Semaphore(limits.executions)
        self._shared_chains = SharedChains()

    def find_plugins(self, network: NetworkConfigurationList) -> tuple[Path, ...]:
        """Return every executable that `network` needs, those for IPAM included, in its order.

        Nothing is executed.

        Raises:
            PluginNotFound: One is missing.
            VersionUnsupported: The list is of a CNI version this runtime does not speak.
        """
        require_supported(network.cni_version)
        types = (name for plugin in network.plugins for name in (plugin.type, plugin.ipam_type) if name)
        return tuple(find_plugin(name, self._plugin_dirs) for name in types)

    async def add(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        *,
        on_result: Callable[[Result], Awaitable[None]] | None = None,
    ) -> Result:
        """Add a container to a network and return the last plugin's result (CNI SPEC "Adding an attachment").

        The plugins run in their order, each told the result of the one before. The first failure ends it, and so does
        cancellation. A `delete` is owed from the moment this is called, however it ends: also for plugins that failed,
        or have not run at all.

        Args:
            network: The list.
            attachment: The container.
            on_result: Is awaited with each plugin's result before the next one runs, so that it can be stored: a DEL
                that follows a failure, or a crash, needs the last one. What it raises ends the ADD.

        Raises:
            PluginNotFound, VersionUnsupported: Nothing has been executed.
            PluginNotStarted, PluginFailed, PluginTimeout, BadResult: About one plugin; those after it have not run.
        """
        require_supported(network.cni_version)
        for plugin in network.plugins:
            find_plugin(plugin.type, self._plugin_dirs)
        result: Result | None = None
        for plugin in network.plugins:
            result = await self._add(network, plugin, attachment, result)
            if on_result is not None:
                await on_result(result)
        assert result is not None  # noqa: S101  # a list has at least one plugin
        return result

    async def delete(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        result: Result | None,
        *,
        answered: int | None = None,
    ) -> None:
        """Delete a container from a network (CNI SPEC "Deleting an attachment").

        The plugins run in reverse order. One that fails is tried once more, because some fail at what is missing
        already and are done then; if it fails again, those before it do not run: they would free the address while
        rules for it are still there. It may be repeated, and should be until it succeeds.

        A plugin whose ADD has not come to its end is asked as well, but may refuse: one that cannot run at all must not
        keep the others from undoing what they did.

        Args:
            network: The list that was used for ADD, not the one that may be on disk now.
            attachment: What was given to ADD.
            result: What ADD returned, or the last that it told on its way; None if no plugin came to its end.
            answered: How many plugins came to the end of their ADD, None for all.

        Raises:
            PluginNotFound, PluginNotStarted, PluginFailed, PluginTimeout: About one plugin; those before it in the list
                have not run.
        """
        prev_result = result if is_at_least(network.cni_version, "0.4.0") else None
        must = len(network.plugins) if answered is None else answered
        for index, plugin in reversed(tuple(enumerate(network.plugins))):
            request = self._request(Verb.DEL, network, plugin, attachment, prev_result)
            try:
                await self._delete(request)
            except PluginError as exc:
                if index < must:
                    raise
                log.warning("plugin.delete_failed", extra={"plugin": plugin.type, "error": str(exc)})

    async def _delete(self, request: Request) -> None:
        try:
            await self._execute(request, nullcontext())
        except PluginFailed:
            await self._execute(request, nullcontext())

    async def _add(
        self,
        network: NetworkConfigurationList,
        plugin: PluginConfiguration,
        attachment: Attachment,
        prev_result: Result | None,
    ) -> Result:
        request = self._request(Verb.ADD, network, plugin, attachment, prev_result)
        output = await self._execute(request, self._shared_chains.first_alone(plugin, attachment, prev_result))
        try:
            return parse_result(output.stdout, network.cni_version)
        except BadResult as exc:
            raise BadResult(exc.reason, plugin=plugin.type, verb=Verb.ADD, stderr_tail=output.stderr_tail) from exc

    def _request(
        self,
        verb: Verb,
        network: NetworkConfigurationList,
        plugin: PluginConfiguration,
        attachment: Attachment,
        prev_result: Result | None,
    ) -> Request:
        return make_request(
            verb,
            network,
            plugin,
            attachment,
            prev_result=prev_result,
            plugin_dirs=self._plugin_dirs,
            environment=self._environment,
        )

    async def _execute(self, request: Request, alone: AbstractAsyncContextManager[None]) -> Output:
        """Carry out a request as soon as it is its turn; `alone` is held meanwhile."""
        path = find_plugin(request.plugin, self._plugin_dirs)
        loop = asyncio.get_running_loop()
        timeout_s = self._limits.timeout_s(request.verb)
        deadline = loop.time() + timeout_s
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout_at(deadline):
                    await turn.enter_async_context(alone)
                    await turn.enter_async_context(self._slots)
            except TimeoutError as exc:
                raise PluginTimeout(
                    plugin=request.plugin, verb=request.verb, timeout_s=timeout_s, started=False
                ) from exc
            started = loop.time()
            try:
                return await execute(request, path, deadline=deadline, limits=self._limits)
            finally:
                if self._observer is not None:
                    self._observer.on_execution(request.plugin, request.verb, loop.time() - started)
