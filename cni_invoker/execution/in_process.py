# SPDX-License-Identifier: Apache-2.0
"""Plugins that the program itself offers, with the contract of an executable: a call is a thread, not a process.

A process of Python takes tens of milliseconds before its plugin does anything. A thread cannot be killed: a call that
has not ended in time fails as that of an executable does, but goes on, and so does one whose caller was cancelled.
Until it has ended, no other call of the plugin for the same container and network begins. If this process is killed,
so is the plugin, and what it has begun is undone by the DEL that is due after each killed ADD.
"""

import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING

from cni_invoker.documents.request import Request
from cni_invoker.errors import PluginTimeout
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.process import Ended
from cni_invoker.execution.running_plugins import ALL_CONTAINERS
from cni_invoker.waiting import start_thread, wait_for_threads

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Answer = Callable[[Mapping[str, str], bytes], tuple[int, bytes, bytes]]
"""Answers a call: of its environment and standard input it makes exit status, standard output and standard error. See
`cni_plugin.Plugin.answer`, which says what it may not do."""

_Call = Future[tuple[int, bytes, bytes]]
_Key = tuple[str, str, str]


def installed_plugins() -> dict[str, Answer]:
    """Return the plugins that installed distributions offer, by type, for `Runtime(…, in_process=…)`.

    They are the entry points of the group `cni_invoker.plugins`: the name is the plugin's type, and the object an
    `Answer`, such as `egress = cni_egress.plugin:PLUGIN.answer`. A plugin is loaded at its first call. If that fails,
    so does the call.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415  # it takes long to load, and few programs need it

    return {one.name: _loading(one) for one in entry_points(group="cni_invoker.plugins")}


def _loading(entry: "EntryPoint") -> Answer:
    load = cache(entry.load)

    def answer(environment: Mapping[str, str], stdin: bytes) -> tuple[int, bytes, bytes]:
        loaded: Answer = load()
        return loaded(environment, stdin)

    return answer


class PluginThreads:
    """Runs calls of plugins of this process, each in a thread of its own, so that it may enter a namespace."""

    def __init__(self) -> None:
        self._running: dict[_Call, _Key] = {}

    async def run(self, answer: Answer, request: Request, limits: Limits, *, owner: str) -> Ended:
        """Run a call until it has ended or its time is over. Then, and after a cancellation, its thread goes on.

        `owner` is the container ID, or `ALL_CONTAINERS`; empty if it works for none.

        Raises:
            PluginTimeout: An earlier call for the same container has not ended in that time; this one has not begun.
            BlockingIOError: There is no thread for it.
        """
        limit_s = limits.timeout_s(request.verb, request.ports, ipam=request.ipam)
        begun = time.monotonic()
        key = (request.plugin, request.network, owner)
        while earlier := self._find(key):
            if not await wait_for_threads(earlier, begun + limit_s):
                raise PluginTimeout(
                    plugin=request.plugin, verb=request.verb, path=None, timeout_s=limit_s, started=False
                )

        def work() -> tuple[int, bytes, bytes]:
            try:
                return answer(request.environment, request.stdin)
            except BaseException:  # noqa: BLE001  # as an executable that crashes
                return 1, b"", traceback.format_exc().encode("utf-8", "backslashreplace")

        started = time.monotonic()
        call: _Call = start_thread(work)
        self._running[call] = key
        ended = await wait_for_threads([call], started + limit_s)
        status, stdout, stderr = None, b"", b""
        if ended:
            self._running.pop(call, None)  # another call may have looked meanwhile
            status, stdout, stderr = call.result()
        return Ended(
            status=status,
            timed_out=not ended,
            stdout=stdout[: limits.stdout_bytes],
            stdout_complete=len(stdout) <= limits.stdout_bytes,
            stderr=stderr[max(0, len(stderr) - limits.stderr_bytes) :],
            duration_s=time.monotonic() - started,
        )

    def _find(self, key: _Key) -> list[_Call]:
        """Return the running calls beside which a call may not run: of its container, or of GC if either is one."""
        self._running = {call: one for call, one in self._running.items() if not call.done()}
        plugin, network, owner = key
        return [
            call
            for call, (its_plugin, its_network, other) in self._running.items()
            if (its_plugin, its_network) == (plugin, network)
            and owner
            and other
            and (owner == other or ALL_CONTAINERS in {owner, other})
        ]
