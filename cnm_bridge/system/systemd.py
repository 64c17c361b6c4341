# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Receives open sockets from systemd, and reports readiness and life to it.

All are no-ops outside systemd. The variables are removed from the environment, because plugins inherit it.
Sources: sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3), systemd.exec(5).
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from typing import Final

_FIRST_FD: Final = 3


def take_sockets() -> Mapping[str, socket.socket]:
    """Return the listening sockets that systemd passed to this process, and unset the environment variables.

    The key is the name of the descriptor (`FileDescriptorName=` in systemd.socket(5)), "" if it has none. Of several
    sockets with one name, it is the first.
    """
    mine = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    count = os.environ.pop("LISTEN_FDS", "")
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    if not mine or not count.isdigit():
        return {}
    found: dict[str, socket.socket] = {}
    for fd, name in zip(range(_FIRST_FD, _FIRST_FD + int(count)), chain(names, repeat("")), strict=False):
        os.set_inheritable(fd, False)
        found.setdefault(name, socket.socket(fileno=fd))
    return found


@contextmanager
def notifying() -> Iterator[Callable[[str], None]]:
    """Yield a function that reports a state such as `READY=1` to systemd, and unset its environment variable.

    The function raises nothing, even if no supervisor listens, and needs no free descriptor: a daemon that has none
    left recovers when calls end, so the watchdog must not kill it.
    """
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        yield lambda _: None
        return
    if address.startswith("@"):  # an abstract socket begins with NUL
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:

        def notify(state: str) -> None:
            with suppress(OSError):
                sock.sendto(state.encode(), address)

        yield notify


def take_watchdog_s() -> float | None:
    """Return the time limit of systemd's watchdog for this process, and unset its variables; None if there is none."""
    mine = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    limit_us = os.environ.pop("WATCHDOG_USEC", "")
    return int(limit_us) / 1e6 if mine and limit_us.isdigit() and int(limit_us) else None


def is_journal(fd: int) -> bool:
    """Return whether a descriptor leads directly to the journal, which reads a priority at the beginning of lines."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))
