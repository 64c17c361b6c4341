# SPDX-License-Identifier: Apache-2.0
"""Objects that several threads use, in a process that forks.

A forked child has only the thread that has forked it. What the others held, or were about to change, is free there;
otherwise the child would wait for them forever.
"""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["reset_in_child"]

T = TypeVar("T")

_RESETS: Final[WeakKeyDictionary[Any, Callable[[Any], None]]] = WeakKeyDictionary()


def reset_in_child(owner: T, reset: Callable[[T], None]) -> None:
    """Call `reset` with `owner` now, and at the beginning of each process that is forked from this one.

    Args:
        owner: The object; it may end before.
        reset: Makes its locks, and forgets who has them. It must not refer to the object: pass a function of its class.
    """
    reset(owner)
    _RESETS[owner] = reset


def _reset_all() -> None:
    for owner, reset in tuple(_RESETS.items()):
        reset(owner)


os.register_at_fork(after_in_child=_reset_all)
