# SPDX-License-Identifier: Apache-2.0
"""Executes plugins: finds them, limits concurrency and time, and retries when a plugin asks for it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cni_invoker.errors import CniError, PluginFailed, PluginTimeout
from cni_invoker.execution.execute import Output, execute
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.network_slots import NetworkSlots
from cni_invoker.execution.plugin_exec import PluginExec
from cni_invoker.execution.request import Request
from cni_invoker.execution.running_files import ALL_CONTAINERS, RunningPlugins
from cni_invoker.protocol import Verb

__all__ = ["Execution", "ExecutionObserver", "Executor", "Slot"]

log = logging.getLogger(__name__)

Slot = Callable[[], AbstractAsyncContextManager[None]]
"""Returns what is held during an execution."""

_ANSWERS: Final = frozenset({Verb.STATUS, Verb.VERSION})
"""Verbs for which "try again later" is a valid answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a plugin.

    Attributes:
        plugin: The plugin's type.
        verb: What it was asked to do.
        container_id: The container ID of the attachment, empty if there is none.
        outcome: `success`, or the name of the error's class.
        duration_s: How long it took, in seconds, without the wait for a slot.
    """

    plugin: str
    verb: Verb
    container_id: str
    outcome: str
    duration_s: float


class ExecutionObserver(Protocol):
    """Observes executions. Called after each one, successful or not, in the task that waits for it.

    An exception that it raises is logged, and changes nothing.
    """

    def on_execution(self, execution: Execution) -> None:
        """Record an execution that has ended."""


class Executor:
    """Executes a limited number of plugins at once.

    Each network has a share of the slots (module `network_slots`). DEL has slots of its own, so ADDs that hang cannot
    block it.

    Args:
        plugin_dirs: Where plugins are searched; the first directory that has the plugin wins.
        limits: Timeouts, sizes and counts.
        observer: Called after every execution.
        running: Records which plugins run.
        plugin_exec: Finds and runs them; None: on this host.
    """

    def __init__(
        self,
        plugin_dirs: Sequence[Path],
        limits: Limits,
        observer: ExecutionObserver | None,
        running: RunningPlugins,
        plugin_exec: PluginExec | None = None,
    ) -> None:
        self._plugin_dirs = tuple(plugin_dirs)
        self._limits = limits
        self._observer = observer
        self._running = running
        self._exec = PluginExec() if plugin_exec is None else plugin_exec
        self._slots = NetworkSlots(limits.executions)
        self._slots_of_delete = NetworkSlots(limits.executions)

    def find(self, plugin_type: str) -> Path:
        """Return the executable of a plugin.

        Raises:
            PluginNotFound: No plugin directory has it.
        """
        return self._exec.find(plugin_type, self._plugin_dirs)

    async def run(
        self,
        request: Request,
        exclusive: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        *,
        slot: Slot | None = None,
        undo: Callable[[], Request] | None = None,
        complete: Callable[[Request], Awaitable[Request]] | None = None,
    ) -> Output:
        """Execute a request as soon as there is a free slot.

        A plugin that reports "try again later" (error code 11) is retried after each pause of the limits.

        Args:
            request: The request.
            exclusive: Called before each attempt; returns a lock that is held during it.
            slot: Called before each attempt; returns a slot that is held during it, instead of one of this object's.
            undo: Returns a request that must succeed between two attempts. If it fails, a note is added to the plugin's
                error and there is no further attempt.
            complete: Awaited with the request just before each attempt, when it has its slot; returns the request to
                execute. Its exception is raised, and the attempt executes nothing.

        Raises:
            PluginNotFound, PluginNotStarted, PluginTimeout, PluginFailed: As `execute`.
        """
        for pause_s in () if request.verb in _ANSWERS else self._limits.retry_pauses_s:
            try:
                return await self._run(request, exclusive(), self._choose_slot(request, slot), complete)
            except PluginFailed as exc:
                if not exc.is_transient:
                    raise
                if undo is not None:
                    await self._undo(undo(), exc)
            await asyncio.sleep(pause_s)
        return await self._run(request, exclusive(), self._choose_slot(request, slot), complete)

    def _choose_slot(self, request: Request, slot: Slot | None) -> AbstractAsyncContextManager[None]:
        if slot is not None:
            return slot()
        return (self._slots_of_delete if request.verb is Verb.DEL else self._slots).held(_share_of(request))

    async def _undo(self, undo: Request, failed: PluginFailed) -> None:
        try:
            await self._run(undo, nullcontext(), self._slots_of_delete.held(_share_of(undo)))
        except CniError as exc:
            failed.add_note(f"it was not asked again, because what it had begun could not be undone: {exc}")
            raise failed from exc

    async def _run(
        self,
        request: Request,
        exclusive: AbstractAsyncContextManager[None],
        slot: AbstractAsyncContextManager[None],
        complete: Callable[[Request], Awaitable[Request]] | None = None,
    ) -> Output:
        path = self.find(request.plugin)
        wait_s = self._limits.wait_s
        async with AsyncExitStack() as turn:
            try:
                async with asyncio.timeout(wait_s):
                    await turn.enter_async_context(exclusive)
                    await turn.enter_async_context(slot)
            except TimeoutError as exc:
                raise PluginTimeout(
                    plugin=request.plugin, verb=request.verb, path=path, timeout_s=wait_s, started=False
                ) from exc
            if complete is not None:
                request = await complete(request)
            started = time.monotonic()
            deadline = started + self._limits.timeout_s(request.verb, request.ports, ipam=request.ipam)
            outcome = "success"
            try:
                owner = ALL_CONTAINERS if request.verb is Verb.GC else request.environment["CNI_CONTAINERID"]
                with self._running.keep(owner) as on_started:
                    return await execute(
                        request,
                        path,
                        deadline=deadline,
                        limits=self._limits,
                        on_started=on_started,
                        plugin_exec=self._exec,
                    )
            except BaseException as exc:
                outcome = type(exc).__name__
                raise
            finally:
                self._report(request, outcome, time.monotonic() - started)

    def _report(self, request: Request, outcome: str, duration_s: float) -> None:
        """Log an execution and pass it to the observer, whose errors end nothing."""
        facts = {"plugin": request.plugin, "verb": request.verb.value}
        if log.isEnabledFor(logging.DEBUG):
            known = {
                "container_id": request.environment["CNI_CONTAINERID"],
                "ifname": request.environment["CNI_IFNAME"],
                "outcome": outcome,
                "duration_ms": round(duration_s * 1000, 1),
            }
            log.debug("plugin.executed", extra=facts | known)
        if self._observer is not None:
            try:
                self._observer.on_execution(
                    Execution(
                        plugin=request.plugin,
                        verb=request.verb,
                        container_id=request.environment["CNI_CONTAINERID"],
                        outcome=outcome,
                        duration_s=duration_s,
                    )
                )
            except Exception:
                log.exception("plugin.not_observed", extra=facts)


def _share_of(request: Request) -> str:
    """Return what an execution is counted for: its network; for VERSION, which has none, its plugin."""
    return request.network or f"/{request.plugin}"  # no network has this name
