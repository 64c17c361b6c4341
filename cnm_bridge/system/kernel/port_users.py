# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the program that has a port of the host, in `/proc`."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

_SOCKETS: Final = Path("/proc/thread-self/net")
_PROCESSES: Final = Path("/proc")
_LISTENING: Final = {"tcp": "0A", "udp": "07"}
"""The state of a socket that waits for packets of anyone (kernel `include/net/tcp_states.h`)."""
_DOCKER: Final = frozenset({"docker-proxy", "dockerd"})
"""What holds the ports that Docker itself has published."""
_WORD: Final = 4


def find_port_user(protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> str | None:
    """Return what has a port, e.g. `nginx (process 812)`; None if it is not visible.

    It looks at the files of all processes, so it takes milliseconds, on a large host tens of them.

    Args:
        protocol: `tcp`, `udp` or `sctp`; the last is never found.
        host_ip: The address, None for all addresses.
        port: The port number.
    """
    wanted = {f"socket:[{inode}]" for inode in _find_inodes(protocol, host_ip, port)}
    pid = next((pid for pid, file in _open_files() if file in wanted), None) if wanted else None
    if pid is None:
        return None
    with suppress(OSError):  # it has just ended
        name = (_PROCESSES / pid / "comm").read_text("utf-8", "replace").strip()
        if name in _DOCKER:
            return f"a container that Docker itself has published (docker ps --filter publish={port})"
        return f"{name} (process {pid})"
    return None


def _find_inodes(protocol: str, host_ip: IPv4Address | IPv6Address | None, port: int) -> Iterator[str]:
    for family in ("", "6"):
        with suppress(OSError):  # the kernel does not support it
            for line in (_SOCKETS / f"{protocol}{family}").read_text("ascii").splitlines()[1:]:
                _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
                address, _, number = local.partition(":")
                if (
                    state == _LISTENING.get(protocol)
                    and int(number, 16) == port
                    and _overlaps(_parse(address), host_ip)
                ):
                    yield inode


def _parse(text: str) -> IPv4Address | IPv6Address:
    """Parse an address whose 32-bit words are in the machine's byte order (proc_pid_net(5))."""
    words = (int(text[i : i + 2 * _WORD], 16) for i in range(0, len(text), 2 * _WORD))
    return ip_address(b"".join(word.to_bytes(_WORD, sys.byteorder) for word in words))


def _overlaps(used: IPv4Address | IPv6Address, wanted: IPv4Address | IPv6Address | None) -> bool:
    return wanted is None or used.is_unspecified or wanted.is_unspecified or used == wanted


def _open_files() -> Iterator[tuple[str, str]]:
    """Yield the process ID and what it is, of each open file."""
    for process in (one for one in _PROCESSES.iterdir() if one.name.isdigit()):
        with suppress(OSError):  # it has ended
            for file in [*(process / "fd").iterdir()]:
                with suppress(OSError):
                    yield process.name, str(file.readlink())
