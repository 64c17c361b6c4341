# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Gives up root: the process becomes another user, and keeps CAP_NET_ADMIN only, which its child processes have too."""

import ctypes
import os
import pwd
import struct
from typing import Final

__all__ = ["become"]

# linux/capability.h, linux/prctl.h
_CAP_NET_ADMIN: Final = 12
_VERSION_3: Final = 0x20080522
_PR_SET_KEEPCAPS: Final = 8
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_RAISE: Final = 2
_LAST: Final = "/proc/sys/kernel/cap_last_cap"


def become(user: str) -> None:
    """Become a user that may configure networks, and nothing else that the user itself may not.

    No other thread may run, because each thread has capabilities of its own.

    Raises:
        KeyError: There is no such user.
        OSError: The kernel refuses.
    """
    entry = pwd.getpwnam(user)
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot give up root: {name}: {os.strerror(number)}")

    with open(_LAST, "rb") as file:  # noqa: PTH123
        last = int(file.read())
    call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
    for capability in range(last + 1):
        if capability != _CAP_NET_ADMIN:
            call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([entry.pw_gid])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    kept = 1 << _CAP_NET_ADMIN
    call("capset", struct.pack("=Ii", _VERSION_3, 0), struct.pack("=6I", kept, kept, kept, 0, 0, 0))
    call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_NET_ADMIN, 0, 0)
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
