# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The responder's sockets, in a network namespace of its own: no other program has port 53 there, or rules for it.

The namespace is mounted nowhere. It exists as long as the sockets, so nothing of it is left when the process is killed;
its link to the host goes with it. Making it needs the right to make namespaces (CAP_SYS_ADMIN), using it needs none.
"""

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cni_egress.tables import RESPONDER4, RESPONDER6, RESPONDER_LINK

__all__ = ["Sockets", "has_link", "open_sockets"]

_PORT: Final = 53
_HOST4: Final = "169.254.53.1"
_HOST6: Final = "fd53:5353::1"
_BACKLOG: Final = 256
_RECEIVE_BUFFER_BYTES: Final = 4 << 20
_CLONE_NEWNET: Final = 0x40000000
_GONE_S: Final = 5.0
_PAUSE_S: Final = 0.05
_IPV6: Final = Path("/proc/sys/net/ipv6/conf")
_INSIDE: Final = (
    "link set lo up",
    "link set eth0 up",
    f"address add {RESPONDER4}/32 dev eth0",
    f"route add {_HOST4} dev eth0",
    f"route add default via {_HOST4} dev eth0",
)
_INSIDE6: Final = (
    f"address add {RESPONDER6}/128 dev eth0 nodad",
    f"route add {_HOST6} dev eth0",
    f"route add default via {_HOST6} dev eth0",
)
_OUTSIDE: Final = (
    f"link set {RESPONDER_LINK} up",
    f"address add {_HOST4}/32 dev {RESPONDER_LINK}",
    f"route add {RESPONDER4}/32 dev {RESPONDER_LINK}",
)
_OUTSIDE6: Final = (
    f"address add {_HOST6}/128 dev {RESPONDER_LINK} nodad",
    f"route add {RESPONDER6}/128 dev {RESPONDER_LINK}",
)
_SYSCTLS: Final = {"rp_filter": "0", "forwarding": "1"}
"""Queries keep the container's address, which has another way back on the host."""


@dataclass(frozen=True, slots=True)
class Sockets:
    """The bound sockets, one of each kind for IPv4 and IPv6."""

    udp: tuple[socket.socket, ...]
    tcp: tuple[socket.socket, ...]


@contextmanager
def open_sockets() -> Iterator[Sockets]:
    """Make the namespace and give its sockets; both end with the block. This thread stays where it is.

    Raises:
        OSError: The namespace or the link cannot be made.
    """
    _remove_link()
    with ExitStack() as stack:
        found: list[Sockets] = []
        failures: list[OSError] = []

        def work() -> None:
            try:
                _enter_new_namespace()
                _run_ip((f"link add eth0 type veth peer name {RESPONDER_LINK} netns {os.getpid()}", *_INSIDE))
                _configure_ipv6("eth0", _INSIDE6)
                found.append(_bind(stack))
            except OSError as exc:
                failures.append(exc)

        thread = threading.Thread(target=work)  # a thread never returns from another namespace
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        _run_ip(_OUTSIDE)
        _configure_ipv6(RESPONDER_LINK, _OUTSIDE6)
        for name, value in _SYSCTLS.items():
            Path("/proc/sys/net/ipv4/conf", RESPONDER_LINK, name).write_text(value, "ascii")
        yield found[0]


def has_link() -> bool:
    """Return whether the host still has its end of the link, and the namespace the other one."""
    try:
        socket.if_nametoindex(RESPONDER_LINK)
    except OSError:
        return False
    return True


def _remove_link() -> None:
    """Remove the link of a process that was killed; the kernel may not have got to it yet."""
    deadline = time.monotonic() + _GONE_S
    while has_link():
        subprocess.run(["ip", "link", "delete", RESPONDER_LINK], check=False, stderr=subprocess.DEVNULL)  # noqa: S607
        if time.monotonic() > deadline:
            raise TimeoutError(f"the link {RESPONDER_LINK} of an earlier process cannot be removed")
        time.sleep(_PAUSE_S)


def _enter_new_namespace() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot make a network namespace: {os.strerror(number)}")


def _run_ip(commands: Iterable[str], *options: str) -> None:
    """Run commands of `ip` in the namespace of the calling thread."""
    command = ("ip", *options, "-batch", "-")
    done = subprocess.run(command, input="\n".join(commands), text=True, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"cannot make the responder's link: {done.stderr.strip()}")


def _configure_ipv6(link: str, commands: tuple[str, ...]) -> None:
    """Give a link IPv6, also where new links have none; a kernel without IPv6 has no container that needs it."""
    if _IPV6.is_dir():
        (_IPV6 / link / "disable_ipv6").write_text("0", "ascii")
        _run_ip(commands, "-6")


def _bind(stack: ExitStack) -> Sockets:
    def bound(kind: socket.SocketKind, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = stack.enter_context(socket.socket(family, kind | socket.SOCK_NONBLOCK))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if kind == socket.SOCK_DGRAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        sock.bind((address, _PORT))
        if kind == socket.SOCK_STREAM:
            sock.listen(_BACKLOG)
        return sock

    addresses = (RESPONDER4, RESPONDER6) if _IPV6.is_dir() else (RESPONDER4,)
    return Sockets(
        udp=tuple(bound(socket.SOCK_DGRAM, address) for address in addresses),
        tcp=tuple(bound(socket.SOCK_STREAM, address) for address in addresses),
    )
