# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Edits the resolv.conf of a container, in the file that dockerd has mounted over `/etc/resolv.conf`.

The image decides what `/etc` is, so no symbolic link is followed: it could lead to a file of the host.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["edit_in_container"]

_PATH: Final = "/etc/resolv.conf"
_ROOT, _POINT = 3, 4
"""Fields of mountinfo: the mounted file within its file system, and where it is mounted (proc(5))."""
_LARGEST: Final = 1 << 16


def edit_in_container(process: Path, container_id: str, edit: Callable[[str], str | None]) -> bool:
    """Edit the file in place; return whether it was changed.

    It is not if it is none of dockerd's (`-v FILE:/etc/resolv.conf`), or if `edit` returns None.

    Args:
        process: The directory of the container's first process in `/proc`.
        container_id: The ID of the container, which is in the path of dockerd's file.
        edit: Returns the new content.

    Raises:
        OSError: The process has ended, or the file cannot be written: the container is read-only.
    """
    mounts = (line.split() for line in (process / "mountinfo").read_text("utf-8", errors="replace").splitlines())
    if not any(mount[_POINT] == _PATH and mount[_ROOT].endswith(f"/{container_id}/resolv.conf") for mount in mounts):
        return False
    root = os.open(process / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        etc = os.open("etc", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    finally:
        os.close(root)
    try:
        file = os.open("resolv.conf", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=etc)
    finally:
        os.close(etc)
    try:
        changed = edit(os.pread(file, _LARGEST, 0).decode("utf-8", "replace"))
        if changed is None:
            return False
        content = changed.encode()
        os.ftruncate(file, 0)
        os.pwrite(file, content, 0)
    finally:
        os.close(file)
    return True
