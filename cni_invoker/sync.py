# SPDX-License-Identifier: Apache-2.0
"""The runtime for programs without asyncio: each call runs in an event loop of its own, by `asyncio.run`.

The names of `cni_invoker` have the documentation. An object here has the asynchronous one inside. Calls of several
threads run one after the other. In a thread whose event loop runs, such as a notebook's, a call is a RuntimeError:
await that object there.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

import cni_invoker

__all__ = ["CachedRuntime", "Runtime"]

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")

_one_at_a_time = threading.RLock()
"""The objects inside are for one event loop at a time."""


class _Blocking(Generic[A]):
    def __init__(self, asynchronous: A) -> None:
        self.asynchronous = asynchronous


def _run(method: Callable[Concatenate[A, P], Coroutine[None, None, T]]) -> Callable[Concatenate[_Blocking[A], P], T]:
    @wraps(method)
    def run(self: _Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with _one_at_a_time:
            return asyncio.run(method(self.asynchronous, *args, **kwargs))

    return run


class Runtime(_Blocking[cni_invoker.Runtime]):
    """Adds, checks and deletes, and runs STATUS and GC: `Runtime(cni_invoker.Runtime("/opt/cni/bin"))`."""

    version, negotiate = _run(cni_invoker.Runtime.version), _run(cni_invoker.Runtime.negotiate)
    add, check, delete = (
        _run(cni_invoker.Runtime.add),
        _run(cni_invoker.Runtime.check),
        _run(cni_invoker.Runtime.delete),
    )
    gc, status = _run(cni_invoker.Runtime.gc), _run(cni_invoker.Runtime.status)


class CachedRuntime(_Blocking[cni_invoker.CachedRuntime]):
    """The same with stored attachments: `CachedRuntime(cni_invoker.CachedRuntime.open("/opt/cni/bin"))`."""

    add = _run(cni_invoker.CachedRuntime.add)
    check, check_cached = _run(cni_invoker.CachedRuntime.check), _run(cni_invoker.CachedRuntime.check_cached)
    delete, delete_cached = _run(cni_invoker.CachedRuntime.delete), _run(cni_invoker.CachedRuntime.delete_cached)
    gc, status = _run(cni_invoker.CachedRuntime.gc), _run(cni_invoker.CachedRuntime.status)
    attachments = _run(cni_invoker.CachedRuntime.attachments)
