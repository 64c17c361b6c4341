# SPDX-License-Identifier: Apache-2.0
"""Executes plugins: finds them, limits concurrency and time, and retries when a plugin asks for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from cni_invoker.documents.request import Request
from cni_invoker.documents.versions import Verb
from cni_invoker.errors import CniError, PluginFailed, PluginNotStarted, PluginTimeout
from cni_invoker.execution.answer import Output, find_plugin, judge, why_not_executed
from cni_invoker.execution.in_process import Answer, PluginThreads
from cni_invoker.execution.limits import Limits, NetworkSlots
from cni_invoker.execution.process import Ended, run_program
from cni_invoker.execution.running_plugins import ALL_CONTAINERS, RunningPlugins
from cni_invoker.messages import is_debugging, log_event

Slot = Callable[[], AbstractAsyncContextManager[None]]
"""Returns what is held during an execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a plugin.

    Attributes:
        container_id: Empty if it was for no container.
        outcome: `success`, or the name of the error's class.
        duration_s: How long it took, without the wait for a slot.
    """

    plugin: str
    verb: Verb
    container_id: str
    outcome: str
    duration_s: float


Observer = Callable[[Execution], None]
"""Called after each execution, successful or not, in the task that waits for it.

An exception that it raises is logged, and changes nothing."""


class Executor:
    """Executes a limited number of plugins at once.

    Each network has a share of the slots (module `limits`). DEL has slots of its own, so ADDs that hang cannot
    block it.

    The parameters are those of `Runtime`.
    """

    def __init__(
        self,
        plugin_dirs: Sequence[Path],
        limits: Limits,
        observer: Observer | None,
        running: RunningPlugins,
        in_process: Mapping[str, Answer] | None = None,
    ) -> None:
        self._plugin_dirs = tuple(plugin_dirs)
        self._limits = limits
        self._observer = observer
        self._running = running
        self._in_process = dict(in_process or {})
        self._threads = PluginThreads()
        self._slots: NetworkSlots[object] = NetworkSlots(limits.executions)
        self._slots_of_delete: NetworkSlots[object] = NetworkSlots(limits.executions)

    def find(self, plugin_type: str) -> Path | None:
        """See `Runtime.find_plugin`."""
        return None if plugin_type in self._in_process else self.find_executable(plugin_type)

    def find_executable(self, plugin_type: str) -> Path:
        """See `Runtime.find_executable`."""
        return find_plugin(plugin_type, self._plugin_dirs)

    async def run(
        self,
        request: Request,
        slot: Slot | None = None,
        *,
        undo: Callable[[], Request] | None = None,
        amend: Callable[[Request], Awaitable[Request]] | None = None,
    ) -> Output:
        """Execute a request when it is its turn, and again if the plugin asks for that with code 11 (try again later).

        For STATUS and VERSION code 11 is an answer. Cancellation kills the plugin and its process group.

        Args:
            request: What is executed.
            slot: Returns what is held during an execution instead of `slot_of(request)`.
            undo: Returns a request that is executed between two attempts. If it fails, a note is added to the plugin's
                error and there is no further attempt.
            amend: Awaited in the slot, just before each execution; returns the request to execute instead.

        Raises:
            PluginError: The last attempt's, or that of an attempt that could not be undone.
        """
        for pause_s in () if request.verb in {Verb.STATUS, Verb.VERSION} else self._limits.retry_pauses_s:
            try:
                return await self._run_once(request, slot, amend)
            except PluginFailed as failed:
                if not failed.is_transient:
                    raise
                if undo is not None:
                    await self._undo(undo(), failed)
            await asyncio.sleep(pause_s)
        return await self._run_once(request, slot, amend)

    def slot_of(self, request: Request) -> AbstractAsyncContextManager[None]:
        """Return a slot: of its network; for VERSION, which has none, of its plugin."""
        slots = self._slots_of_delete if request.verb is Verb.DEL else self._slots
        return slots.take(object(), request.network or f"/{request.plugin}")  # no network has this name

    async def _undo(self, undo: Request, failed: PluginFailed) -> None:
        try:
            await self._run_once(undo)
        except CniError as exc:
            failed.add_note(f"it was not asked again, because what it had begun could not be undone: {exc}")
            raise failed from exc

    async def _run_once(
        self,
        request: Request,
        slot: Slot | None = None,
        amend: Callable[[Request], Awaitable[Request]] | None = None,
    ) -> Output:
        path = self.find(request.plugin)
        wait_s = self._limits.wait_s
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(wait_s):
                    await held.enter_async_context(self.slot_of(request) if slot is None else slot())
            except TimeoutError as exc:
                raise PluginTimeout(
                    plugin=request.plugin, verb=request.verb, path=path, timeout_s=wait_s, started=False
                ) from exc
            return await self._execute(request if amend is None else await amend(request), path)

    async def _execute(self, request: Request, path: Path | None) -> Output:
        begun = time.monotonic()
        outcome = "success"
        try:
            return judge(request, path, await self._run(request, path, begun), self._limits)
        except BaseException as exc:
            outcome = type(exc).__name__
            raise
        finally:
            self._report(request, outcome, time.monotonic() - begun)

    async def _run(self, request: Request, path: Path | None, begun: float) -> Ended:
        """Run an executable, or a plugin of this process."""
        owner = ALL_CONTAINERS if request.verb is Verb.GC else request.environment["CNI_CONTAINERID"]
        limits = self._limits
        try:
            if path is None:
                return await self._threads.run(self._in_process[request.plugin], request, limits, owner=owner)
            with self._running.keep(owner, request.verb, request.plugin) as kept:
                environment = {**request.environment, **kept.environment}
                deadline = begun + limits.timeout_s(request.verb, request.ports, ipam=request.ipam)
                return await run_program(
                    [str(path)], environment, request.stdin, limits, deadline=deadline, on_started=kept.on_started
                )
        except OSError as exc:
            hint = None if path is None else why_not_executed(path, exc.errno or 0)
            reason = "; ".join(filter(None, (exc.strerror or str(exc), hint)))
            raise PluginNotStarted(plugin=request.plugin, verb=request.verb, path=path, reason=reason) from exc

    def _report(self, request: Request, outcome: str, duration_s: float) -> None:
        """Log an execution and pass it to the observer, whose errors end nothing."""
        facts = {"plugin": request.plugin, "verb": request.verb.value}
        if is_debugging(__name__):
            known = {
                "container_id": request.environment["CNI_CONTAINERID"],
                "ifname": request.environment["CNI_IFNAME"],
                "outcome": outcome,
                "duration_ms": round(duration_s * 1000, 1),
            }
            log_event(__name__, "plugin.executed", **facts | known)
        if self._observer is not None:
            try:
                self._observer(
                    Execution(
                        plugin=request.plugin,
                        verb=request.verb,
                        container_id=request.environment["CNI_CONTAINERID"],
                        outcome=outcome,
                        duration_s=duration_s,
                    )
                )
            except Exception:  # noqa: BLE001  # it is logged
                log_event(__name__, "plugin.not_observed", **facts)
