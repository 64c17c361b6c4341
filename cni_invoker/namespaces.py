# SPDX-License-Identifier: Apache-2.0
"""Work inside another network namespace, in a thread that ends there."""

import os
import sys
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["interface_names", "is_own_namespace", "run_in_namespace"]

T = TypeVar("T")

_OWN: Final = "/proc/thread-self/ns/net"
_CLONE_NEWNET: Final = 0x40000000

if sys.version_info >= (3, 12):
    from os import setns
else:

    def setns(fd: int, nstype: int = 0) -> None:
        """Move this thread into a namespace (setns(2)), as Python can from 3.12 on."""
        import ctypes  # noqa: PLC0415  # a plugin starts anew for each call, and most never need it

        if ctypes.CDLL(None, use_errno=True).setns(fd, nstype) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def run_in_namespace(netns: str, work: Callable[[], T]) -> T:
    """Run `work` in a thread inside a network namespace; programs that it starts are inside too.

    Args:
        netns: Path of the namespace.
        work: The work.

    Raises:
        OSError: The namespace cannot be entered; the work has not begun. The work may raise it as well.
    """
    import threading  # noqa: PLC0415  # as above

    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
            try:
                setns(descriptor, _CLONE_NEWNET)
            finally:
                os.close(descriptor)
            results.append(work())
        except BaseException as exc:  # noqa: BLE001  # the caller raises it
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
    return results[0]


def interface_names() -> tuple[str, ...]:
    """Return the names of all interfaces of this thread's network namespace."""
    with open("/proc/thread-self/net/dev", "rb") as opened:  # noqa: PTH123  # a plugin does without pathlib
        _, _, *lines = opened.read().splitlines()
    return tuple(os.fsdecode(line.partition(b":")[0].strip()) for line in lines)


def is_own_namespace(netns: str) -> bool:
    """Return whether this is the path of this thread's own network namespace; False if there is no such file."""
    try:
        given, own = os.stat(netns), os.stat(_OWN)  # noqa: PTH116  # as above
    except (OSError, ValueError):
        return False
    return (given.st_dev, given.st_ino) == (own.st_dev, own.st_ino)
