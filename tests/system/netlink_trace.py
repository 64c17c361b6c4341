# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Counts the netlink requests with which processes move links between namespaces, by means of strace.

strace decodes netlink only on sockets of its own network namespace, so the bytes are decoded here.
"""

import re
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.lab import Lab, Process, wait_until

_DIRECTORY: Final = "/run/trace"
_HEADER: Final = struct.Struct("=IHHII")  # linux/netlink.h, nlmsghdr
_LINK: Final = struct.Struct("=BxHiII")  # linux/rtnetlink.h, ifinfomsg
_ATTRIBUTE: Final = struct.Struct("=HH")
_CHANGES: Final = frozenset({16, 19})  # RTM_NEWLINK, RTM_SETLINK
_NAMESPACES: Final = frozenset({19, 28})  # IFLA_NET_NS_PID, IFLA_NET_NS_FD
_DUMPED: Final = re.compile(r"^ \| [0-9a-f]{5}  ((?:[0-9a-f]{2} {1,2}){1,16})", re.MULTILINE)


class Trace:
    """What some processes have sent.

    Args:
        directory: It has a file for each of their threads, and of the processes that they started.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def count_moves(self) -> int:
        """Return how often the processes have moved a link, without the programs that they started."""
        texts = (file.read_text("utf-8", errors="replace") for file in self._directory.iterdir())
        return sum(len(find_moves(text)) for text in texts if "execve(" not in text)


@contextmanager
def tracing(lab: Lab, process: Process) -> Iterator[Trace]:
    """Trace a process of the lab and all of its threads until the end of the block; then the trace is complete."""
    directory = f"{_DIRECTORY}/{process.name}"
    lab.run("mkdir", "-p", directory)
    output = (
        "--output-separately",
        "--output",
        f"{directory}/thread",
        "--trace=sendto,sendmsg,execve",
        "-e",
        "write=all",
    )
    strace = lab.spawn("strace", "--follow-forks", *output, "--attach", _pid_inside(process))
    strace.wait_ready(lambda: " attached" in strace.log(), 10)
    try:
        yield Trace(lab.path(directory))
    finally:
        strace.kill(signal.SIGINT)  # it detaches
        wait_until(lambda: strace.returncode is not None, "the end of strace")


def find_moves(trace: str) -> Sequence[bytes]:
    """Return the requests in the trace of a thread that move an existing link to another namespace."""
    calls = re.split(r"^(?=\w+\()", trace, flags=re.MULTILINE)
    sent = (bytes.fromhex("".join(_DUMPED.findall(call))) for call in calls)
    return [data for data in sent if _moves_link(data)]


def _moves_link(data: bytes) -> bool:
    start = _HEADER.size + _LINK.size
    if len(data) < start:
        return False
    length, kind, *_ = _HEADER.unpack_from(data)
    if length != len(data) or kind not in _CHANGES:
        return False
    number = _LINK.unpack_from(data, _HEADER.size)[2]
    return number != 0 and not _NAMESPACES.isdisjoint(_attributes(data[start:]))


def _attributes(data: bytes) -> Iterator[int]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind
        data = data[max(_ATTRIBUTE.size, (length + 3) & ~3) :]


def _pid_inside(process: Process) -> str:
    """Return a process's ID in the innermost PID namespace."""
    lines = Path(f"/proc/{process.pid}/status").read_text("ascii").splitlines()
    return next(line.split()[-1] for line in lines if line.startswith("NSpid:"))
