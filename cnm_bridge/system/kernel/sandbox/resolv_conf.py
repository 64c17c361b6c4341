# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Edits the resolv.conf of a container, in the file that dockerd has mounted over `/etc/resolv.conf`.

The image decides what `/etc` is, so no symbolic link is followed: it could lead to a file of the host. The container
may replace the file at any time. So the file is examined through a descriptor that only names it (O_PATH, open(2)), and
then opened through that one: what is opened is what was examined.
"""

import os
import stat
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cnm_bridge.core.planning.resolv_conf import Edit, FileEdit
from cnm_bridge.system.kernel.sandbox.docker_files import ID, POINT, ROOT, Mount, parse_mounts, paths_of, read_beside

_PATH: Final = "/etc/resolv.conf"
_LARGEST: Final = 1 << 16
_RECORD: Final = "hostconfig.json"
_NOT_DOCKERS: Final = f"the container's {_PATH} is not the file that Docker mounts there"


def edit_in_container(process: Path, container_id: str, edit: Edit) -> FileEdit:
    """Edit the file in place; return what `edit` returned.

    A file that dockerd did not write (`-v FILE:/etc/resolv.conf`) is left alone, and `edit` is not called; that is the
    obstacle then.

    Args:
        process: The directory of the container's first process in `/proc`.
        container_id: The ID of the container, which is in the path of dockerd's file.
        edit: Returns the new content.

    Raises:
        OSError: The process has ended, or the file cannot be written: the container is read-only.
    """
    with ExitStack() as stack:
        open_at = partial(_open, stack)
        # One descriptor for both: if the process ends, they cannot be those of another one with the same ID.
        directory = open_at(process, os.O_PATH | os.O_DIRECTORY)
        root = open_at("root", os.O_PATH | os.O_DIRECTORY, directory)
        etc = open_at("etc", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, root)
        found = open_at("resolv.conf", os.O_PATH | os.O_NOFOLLOW, etc)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            return FileEdit(obstacle=_NOT_DOCKERS)
        with open(open_at("mountinfo", os.O_RDONLY, directory), "rb", closefd=False) as mountinfo:
            mounts = parse_mounts(mountinfo.read())
        mount_id, source = _mount_id(found), f"/{container_id}/resolv.conf"
        mount = next((one for one in mounts if one[ID] == mount_id), None)
        if mount is None or mount[POINT] != _PATH or not mount[ROOT].endswith(source):
            return FileEdit(obstacle=_NOT_DOCKERS)
        file = open_at(f"/proc/self/fd/{found}", os.O_RDWR)
        text = os.pread(file, _LARGEST, 0).decode("utf-8", "replace")
        edited = edit(text, _host_config(found, mount))
        if edited.content is not None:
            content = edited.content.encode()
            os.pwrite(file, content, 0)  # first: if the daemon is killed in between, old lines follow the new ones
            os.ftruncate(file, len(content))
    return edited


def _host_config(descriptor: int, mount: Mount) -> JsonObject | None:
    """Return what the container was made with; None if that cannot be read."""
    for path in paths_of(mount):
        with suppress(OSError):  # another file system may be mounted on the way
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return read_beside(path, _RECORD)
    return None


def _mount_id(descriptor: int) -> str:
    """Return the ID of the mount that an open file is on (proc(5), fdinfo)."""
    fields = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").split()
    return fields[fields.index("mnt_id:") + 1]


def _open(stack: ExitStack, path: str | Path, flags: int, directory: int | None = None) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=directory)
    stack.callback(os.close, descriptor)
    return descriptor
