# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Executions of plugins: found, in their turn, within their time, and again where a plugin asks for it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import Final, Protocol

from cni_invoker.errors import CniError
from cni_invoker.execution.execute import Output, execute
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.plugins import find_plugin
from cni_invoker.execution.request import Request
from cni_invoker.execution.running import RunningPlugins
from cni_invoker.plugin_errors import PluginFailed, PluginTimeout
from cni_invoker.verbs import Verb

__all__ = ["ExecutionObserver", "Executions"]

_ANSWERS: Final = frozenset({Verb.STATUS, Verb.VERSION})
"""For these, "try again later" is the answer."""


class ExecutionObserver(Protocol):
    """Learns what plugins cost. Called in the task that waits for the plugin, after each execution, good or bad."""

    def on_execution(self, plugin: str, verb: Verb, duration_s: float) -> None:
        """Take note that `plugin` was executed for `verb` and took `duration_s` seconds, waiting not included."""


class Executions:
    """Executes plugins, no more than allowed at once; DEL has places of its own, which no hung ADD can take.

    Args:
        plugin_dirs: Where plugins are looked for; the first directory that has one wins.
        limits: Times, sizes and numbers.
        observer: Is told of every execution.
        running: Keeps which plugins run.
    """

    def __init__(
        self, plugin_dirs: Sequence[Path], limits: Limits, observer: ExecutionObserver | None, running: RunningPlugins
    ) -> None:
        self._plugin_dirs = tuple(plugin_dirs)
        self._limits = limits
        self._observer = observer
        self._running = running
        self._slots = asyncio.Semaphore(limits.executions)
        self._slots_of_delete = asyncio.Semaphore(limits.executions)

    def find(self, plugin_type: str) -> Path:
        """Return the executable of a plugin.

        Raises:
            PluginNotFound: There is none.
        """
        return find_plugin(plugin_type, self._plugin_dirs)

    async def run(
        self,
        request: Request,
        alone: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        *,
        place: Callable[[], AbstractAsyncContextManager[None]] | None = None,
        undo: Callable[[], Request] | None = None,
        complete: Callable[[Request], Awaitable[Request]] | None = None,
    ) -> Output:
        """Carry out a request as soon as it is its turn; what `alone` returns is held meanwhile.

        A plugin that says "try again later" (error code 11) is asked again after a pause, and given up after the last
        pause of the limits.

        Args:
            request: The request.
            alone: Is called before each attempt.
            place: The same; what it returns is held instead of one of the places that are counted here.
            undo: Gives the request that must succeed between two attempts; if it fails, that is noted at the plugin's
                error, and there is no further attempt.
            complete: Is awaited with the request when it is its turn, just before each attempt; what it returns is
                carried out. What it raises is raised, and that attempt executes nothing.

        Raises:
            PluginNotFound, PluginNotStarted, PluginTimeout, PluginFailed: As `execute`.
        """
        for pause_s in () if request.verb in _ANSWERS else self._limits.retry_pauses_s:
            try:
                return await self._run(request, alone(), self._place(request, place), complete)
            except PluginFailed as exc:
                if not exc.is_transient:
                    raise
                if undo is not None:
                    await self._undo(undo(), exc)
            await asyncio.sleep(pause_s)
        return await self._run(request, alone(), self._place(request, place), complete)

    def _place(
        self, request: Request, place: Callable[[], AbstractAsyncContextManager[None]] | None
    ) -> AbstractAsyncContextManager[None]:
        if place is not None:
            return place()
        return self._slots_of_delete if request.verb is Verb.DEL else self._slots

    async def _undo(self, undo: Request, failed: PluginFailed) -> None:
        try:
            await self._run(undo, nullcontext(), self._slots_of_delete)
        except CniError as exc:
            failed.add_note(f"it was not asked again, because what it had begun could not be undone: {exc}")
            raise failed from exc

    async def _run(
        self,
        request: Request,
        alone: AbstractAsyncContextManager[None],
        place: AbstractAsyncContextManager[None],
        complete: Callable[[Request], Awaitable[Request]] | None = None,
    ) -> Output:
        path = self.find(request.plugin)
        loop = asyncio.get_running_loop()
        wait_s = self._limits.wait_s
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(wait_s):
                    await turn.enter_async_context(alone)
                    await turn.enter_async_context(place)
            except TimeoutError as exc:
                raise PluginTimeout(
                    plugin=request.plugin, verb=request.verb, path=path, timeout_s=wait_s, started=False
                ) from exc
            if complete is not None:
                request = await complete(request)
            started = loop.time()
            deadline = started + self._limits.timeout_s(request.verb, request.ports)
            try:
                with self._running.keep(request.environment["CNI_CONTAINERID"]) as on_started:
                    return await execute(request, path, deadline=deadline, limits=self._limits, on_started=on_started)
            finally:
                if self._observer is not None:
                    self._observer.on_execution(request.plugin, request.verb, loop.time() - started)
