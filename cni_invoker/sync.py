# SPDX-License-Identifier: Apache-2.0
"""The runtime for programs without asyncio: the same names, and methods that return when they are done.

The names of `cni_invoker` have the whole documentation. All threads may use one object: the asynchronous one is inside,
whose waits block the thread. So operations of all threads on one container run one after the other, and the limits hold
for all of them together. asyncio is loaded only for a cache or a `PluginExec` of the program's own. KeyboardInterrupt
ends a call like a cancellation does; in a thread whose own event loop runs, such as a notebook's, it waits for its end.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cni_invoker.inputs.checks import require_type
from cni_invoker.waiting import has_running_loop

if TYPE_CHECKING:  # the runtime inside, and asyncio, are loaded by the first object that needs them
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Self

    from cni_invoker.caching.cache import AttachmentCache, CachedAttachment
    from cni_invoker.config.lists import NetworkConfigurationList
    from cni_invoker.execution.executor import ExecutionObserver, PluginExec
    from cni_invoker.execution.limits import Limits
    from cni_invoker.execution.request import TraceContext
    from cni_invoker.inputs.attachment import Attachment, AttachmentKey
    from cni_invoker.inputs.checks import StrPath
    from cni_invoker.operations.preflight import Preflight
    from cni_invoker.operations.runtime import Collecting as AsyncCollecting
    from cni_invoker.results import Result
    from cni_invoker.sandbox import AttachedNetwork, SandboxNetwork
    from cni_invoker.versions import VersionInfo

__all__ = [
    "CachedRuntime",
    "Collecting",
    "Runtime",
    "Sandbox",
    "collect_sandboxes",
    "list_sandboxes",
    "run_preflight",
]

T = TypeVar("T")
U = TypeVar("U")

_OURS = "it must be that of cni_invoker.sync"


class Runtime:
    """Adds containers to networks, checks and deletes them, and runs STATUS and GC; made like `cni_invoker.Runtime`.

    It has the same operations, without `slot` and `hooks`, which are for programs with tasks of their own.

    Attributes:
        asynchronous: The runtime inside.
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
        from cni_invoker.operations.runtime import Runtime as Asynchronous  # noqa: PLC0415

        self.asynchronous = Asynchronous(
            plugin_dirs,
            limits,
            observer=observer,
            environment=environment,
            find_trace=find_trace,
            lock_dir=lock_dir,
            running_dir=running_dir,
            plugin_exec=plugin_exec,
            has_chain=has_chain,
        )
        self.needs_loop = plugin_exec is not None and not type(plugin_exec).__module__.startswith("cni_invoker.")

    def find_plugins(self, network: NetworkConfigurationList) -> tuple[Path, ...]:
        """Return the executables of the plugins of `network`."""
        return self.asynchronous.find_plugins(network)

    def find_plugin(self, plugin_type: str) -> Path:
        """Return the executable of a plugin."""
        return self.asynchronous.find_plugin(plugin_type)

    def version(self, plugin_type: str) -> VersionInfo:
        """Return the CNI versions that a plugin supports."""
        return _wait(self.asynchronous.version(plugin_type), self.needs_loop)

    def negotiate(self, network: NetworkConfigurationList) -> NetworkConfigurationList:
        """Return the list in the newest version that fits."""
        return _wait(self.asynchronous.negotiate(network), self.needs_loop)

    def add(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        *,
        on_result: Callable[[Result], object] | None = None,
        prev_result: Result | None = None,
    ) -> Result:
        """Add a container to a network."""
        remember = _as_async(on_result, "on_result")
        return _wait(
            self.asynchronous.add(network, attachment, on_result=remember, prev_result=prev_result), self.needs_loop
        )

    def check(self, network: NetworkConfigurationList, attachment: Attachment, result: Result | None) -> None:
        """Check that an attachment is still as ADD left it."""
        _wait(self.asynchronous.check(network, attachment, result), self.needs_loop)

    def delete(
        self,
        network: NetworkConfigurationList,
        attachment: Attachment,
        result: Result | None,
        *,
        added_plugins: int | None = None,
        deleted: Collection[int] = (),
        on_deleted: Callable[[frozenset[int]], object] | None = None,
        force: bool = False,
    ) -> None:
        """Delete a container from a network."""
        remember = _as_async(on_deleted, "on_deleted")
        _wait(
            self.asynchronous.delete(
                network,
                attachment,
                result,
                added_plugins=added_plugins,
                deleted=deleted,
                on_deleted=remember,
                force=force,
            ),
            self.needs_loop,
        )

    def gc(self, network: NetworkConfigurationList, valid: Iterable[AttachmentKey]) -> None:
        """Have the plugins clean up what belongs to no attachment."""
        _wait(self.asynchronous.gc(network, valid), self.needs_loop)

    @contextmanager
    def collecting(self, network: NetworkConfigurationList, *, wait_s: float | None = None) -> Iterator[Collecting]:
        """Block all other operations on a network."""
        entered = self.asynchronous.collecting(network, wait_s=wait_s)
        inner = _wait(_awaited(entered.__aenter__()), self.needs_loop)
        try:
            yield Collecting(inner, needs_loop=self.needs_loop)
        finally:
            _wait(_awaited(entered.__aexit__(None, None, None)), self.needs_loop)

    def status(self, network: NetworkConfigurationList) -> None:
        """Check that a network is ready for containers."""
        _wait(self.asynchronous.status(network), self.needs_loop)


class Collecting:
    """The operations that are possible while a network is blocked for all others; given by `Runtime.collecting`."""

    def __init__(self, inner: AsyncCollecting, *, needs_loop: bool) -> None:
        self._inner = inner
        self.needs_loop = needs_loop

    def gc(self, valid: Iterable[AttachmentKey]) -> None:
        """Have the plugins clean up everything that belongs to no attachment, like `Runtime.gc`."""
        _wait(self._inner.gc(valid), self.needs_loop)


class CachedRuntime:
    """Adds, checks, deletes and lists attachments, which it stores; made like `cni_invoker.CachedRuntime`.

    Attributes:
        asynchronous: The runtime inside.
    """

    def __init__(
        self, runtime: Runtime, cache: AttachmentCache, *, boot_id: str | None = None, wait_s: float = 120.0
    ) -> None:
        from cni_invoker.caching.runtime import CachedRuntime as Asynchronous  # noqa: PLC0415

        inner = require_type(runtime, Runtime, "runtime", _OURS).asynchronous
        self.asynchronous = Asynchronous(inner, cache, boot_id=boot_id, wait_s=wait_s)
        self.needs_loop = runtime.needs_loop or not type(cache).__module__.startswith("cni_invoker.caching.")

    @classmethod
    def open(
        cls,
        plugin_dirs: StrPath | Iterable[StrPath],
        cache_dir: StrPath = "/var/lib/cni",
        limits: Limits | None = None,
        *,
        lock_dir: StrPath = "/run/cni-invoker",
        observer: ExecutionObserver | None = None,
        environment: Mapping[str, str] = os.environ,
        plugin_exec: PluginExec | None = None,
        wait_s: float = 120.0,
    ) -> Self:
        """Return a runtime that keeps its attachments in files."""
        from cni_invoker.caching.runtime import CachedRuntime as Asynchronous  # noqa: PLC0415

        opened = cls.__new__(cls)
        opened.asynchronous = Asynchronous.open(
            plugin_dirs,
            cache_dir,
            limits,
            lock_dir=lock_dir,
            observer=observer,
            environment=environment,
            plugin_exec=plugin_exec,
            wait_s=wait_s,
        )
        opened.needs_loop = plugin_exec is not None
        return opened

    def add(self, network: NetworkConfigurationList, attachment: Attachment) -> Result:
        """Add a container to a network."""
        return _wait(self.asynchronous.add(network, attachment), self.needs_loop)

    def check(self, network: NetworkConfigurationList, attachment: Attachment) -> None:
        """Ask the plugins whether an attachment is as ADD left it."""
        _wait(self.asynchronous.check(network, attachment), self.needs_loop)

    def check_cached(self, cached: CachedAttachment) -> None:
        """Check an attachment with its record alone."""
        _wait(self.asynchronous.check_cached(cached), self.needs_loop)

    def delete(self, network: NetworkConfigurationList, attachment: Attachment, *, force: bool = False) -> None:
        """Delete a container from a network."""
        _wait(self.asynchronous.delete(network, attachment, force=force), self.needs_loop)

    def delete_cached(self, cached: CachedAttachment, *, force: bool = False) -> None:
        """Delete an attachment with its record alone."""
        _wait(self.asynchronous.delete_cached(cached, force=force), self.needs_loop)

    def forget(self, network: str, key: AttachmentKey) -> None:
        """Forget an attachment; what its plugins created stays."""
        _wait(self.asynchronous.forget(network, key), self.needs_loop)

    def gc(self, network: NetworkConfigurationList, valid: Iterable[AttachmentKey]) -> None:
        """Delete what is not valid, then run the plugins' GC."""
        _wait(self.asynchronous.gc(network, valid), self.needs_loop)

    def status(self, *networks: NetworkConfigurationList) -> None:
        """Check that networks are ready for containers."""
        _wait(self.asynchronous.status(*networks), self.needs_loop)

    def attachments(
        self, network: str | None = None, *, container_id: str | None = None, whole: bool = False
    ) -> tuple[CachedAttachment, ...]:
        """Return the cached attachments."""
        return _wait(self.asynchronous.attachments(network, container_id=container_id, whole=whole), self.needs_loop)


class Sandbox:
    """All attachments of one container; made like `cni_invoker.Sandbox`.

    Attributes:
        asynchronous: The sandbox inside.
    """

    def __init__(self, runtime: CachedRuntime, container_id: str) -> None:
        from cni_invoker.sandbox import Sandbox as Asynchronous  # noqa: PLC0415

        inner = require_type(runtime, CachedRuntime, "runtime", _OURS).asynchronous
        self.asynchronous = Asynchronous(inner, container_id)
        self.needs_loop = runtime.needs_loop

    def add(
        self,
        netns: StrPath,
        networks: Iterable[SandboxNetwork | NetworkConfigurationList],
        *,
        loopback: bool = True,
    ) -> tuple[AttachedNetwork, ...]:
        """Attach the container to all networks, or to none."""
        return _wait(self.asynchronous.add(netns, networks, loopback=loopback), self.needs_loop)

    def check(self) -> None:
        """Ask the plugins of all attachments whether they are as ADD left them."""
        _wait(self.asynchronous.check(), self.needs_loop)

    def delete(self, *, force: bool = False) -> None:
        """Delete all attachments, from what is stored alone."""
        _wait(self.asynchronous.delete(force=force), self.needs_loop)

    def attachments(self) -> tuple[CachedAttachment, ...]:
        """Return the stored attachments of the container, by name of the interface."""
        return _wait(self.asynchronous.attachments(), self.needs_loop)


def list_sandboxes(runtime: CachedRuntime) -> tuple[str, ...]:
    """Return the IDs of all containers that have stored attachments, sorted."""
    from cni_invoker import sandbox  # noqa: PLC0415

    inner = require_type(runtime, CachedRuntime, "runtime", _OURS).asynchronous
    return _wait(sandbox.list_sandboxes(inner), runtime.needs_loop)


def collect_sandboxes(
    runtime: CachedRuntime, networks: Iterable[NetworkConfigurationList], valid: Collection[str]
) -> None:
    """Delete the attachments of containers that no longer exist."""
    from cni_invoker import sandbox  # noqa: PLC0415

    inner = require_type(runtime, CachedRuntime, "runtime", _OURS).asynchronous
    _wait(sandbox.collect_sandboxes(inner, networks, valid), runtime.needs_loop)


def run_preflight(runtime: Runtime, network: NetworkConfigurationList) -> Preflight:
    """Find every plugin that a list needs and ask each for its versions."""
    from cni_invoker.operations import preflight  # noqa: PLC0415

    inner = require_type(runtime, Runtime, "runtime", _OURS).asynchronous
    return _wait(preflight.run_preflight(inner, network), runtime.needs_loop)


def _wait(work: Coroutine[Any, Any, T], needs_loop: bool) -> T:
    """Run `work` in this thread; in another one if an event loop runs in this one."""
    run = _run_in_loop if needs_loop else _run_here
    if not has_running_loop():
        return run(work)
    import contextvars  # noqa: PLC0415
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:  # a thread has one running loop at most
        return pool.submit(lambda: context.run(run, work)).result()


def _run_here(work: Coroutine[Any, Any, T]) -> T:
    try:
        work.send(None)
    except StopIteration as exc:
        value: T = exc.value
        return value
    work.close()
    raise RuntimeError("an operation has awaited what needs an event loop")


def _run_in_loop(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # noqa: PLC0415

    return asyncio.run(work)


async def _awaited(work: Awaitable[T]) -> T:
    """Return the outcome of `work`, as a coroutine."""
    return await work


def _as_async(callback: Callable[[U], object] | None, what: str) -> Callable[[U], Awaitable[None]] | None:
    """Return a callback as the asynchronous runtime needs it.

    Raises:
        TypeError: It is asynchronous: it would not be awaited, so nothing would be stored.
    """
    if callback is None:
        return None
    from inspect import isawaitable, iscoroutinefunction  # noqa: PLC0415

    refused = f"{what} must not be asynchronous; cni_invoker.Runtime awaits it"
    if iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__):
        raise TypeError(refused)

    async def call(value: U) -> None:
        if isawaitable(returned := callback(value)):
            if hasattr(returned, "close"):
                returned.close()
            raise TypeError(refused)

    return call
