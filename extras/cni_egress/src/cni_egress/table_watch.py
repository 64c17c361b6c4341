# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Notices when a program removes something of the tables: `nft flush ruleset`, a reload of a firewall's rules."""

import ctypes
import errno
import socket
import struct
from typing import Final, Self

from cni_egress.netlink import NETFILTER, attributes
from cni_egress.nftables import TABLE
from cni_egress.tables import is_of_policy

__all__ = ["TableWatch", "tells_removal"]

_GROUPS: Final = 1 << 6  # NFNLGRP_NFTABLES
_SUBSYSTEM: Final = 10 << 8
_NAMES: Final = {_SUBSYSTEM | 2: 1, _SUBSYSTEM | 5: 3, _SUBSYSTEM | 8: 2, _SUBSYSTEM | 11: 2}
"""The messages about a removed table, chain, rule and set, and which attribute names table, chain or set."""
_HEADER: Final = struct.Struct("=LHHLL")
_FAMILY_BYTES: Final = 4
_TABLE_NAME: Final = 1
_RECEIVE_BYTES: Final = 1 << 18
_BUFFER_BYTES: Final = 1 << 22
_READS: Final = 64
_SO_ATTACH_FILTER: Final = 26
_FILTER: Final = ((0x20, 0, 0, 12), (0x15, 0, 1, -1), (0x06, 0, 0, 0), (0x06, 0, 0, 0x7FFFFFFF))
"""Classic BPF: load the port in a message's header; if it is the ignored one (-1 here), drop it; otherwise keep it."""


class TableWatch:
    """The kernel's messages about changes of all tables in this network namespace.

    Args:
        ignored: A netlink port whose changes are left out: the one through which each answer opens addresses.
    """

    def __init__(self, ignored: int = 0) -> None:
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_NETLINK, kind, NETFILTER)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        if ignored:
            _ignore(self._socket, ignored)
        self._socket.bind((0, _GROUPS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor, for the event loop."""
        return self._socket.fileno()

    def has_removal(self) -> bool:
        """Read what has come, without waiting; return whether something of our tables was removed, or may have been."""
        found = False
        for _ in range(_READS):
            try:
                found |= tells_removal(self._socket.recv(_RECEIVE_BYTES))
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno != errno.ENOBUFS:
                    raise
                found = True  # messages are lost
        return found


def _ignore(sock: socket.socket, port: int) -> None:
    """Have the kernel drop the messages about changes that came from a netlink port: all of a message are of one."""
    swapped = int.from_bytes(struct.pack("=L", port), "big")  # BPF loads in network order
    code = b"".join(struct.pack("=HBBL", kind, yes, no, swapped if k < 0 else k) for kind, yes, no, k in _FILTER)
    buffer = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(_FILTER), ctypes.addressof(buffer)))


def tells_removal(data: bytes) -> bool:
    """Return whether messages tell of the removal of one of our tables, or of something in it that has to be there."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return False
        if kind in _NAMES:
            found = dict(attributes(data[at + _HEADER.size + _FAMILY_BYTES : at + length]))
            name = found.get(_NAMES[kind], b"")
            if found.get(_TABLE_NAME) == TABLE.encode() + b"\0" and not is_of_policy(name.decode(errors="replace")):
                return True
        at += (length + 3) & ~3
    return False
