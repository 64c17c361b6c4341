# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Edits the resolv.conf of a container, in the file that dockerd has mounted over `/etc/resolv.conf`.

The image decides what `/etc` is, so no symbolic link is followed: it could lead to a file of the host. The container
may replace the file at any time. So the file is examined through a descriptor that only names it (O_PATH, open(2)), and
then opened through that one: what is opened is what was examined.
"""

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, as_object, parse_json
from cnm_bridge.core.planning.resolv_conf import Edit, FileEdit

_PATH: Final = "/etc/resolv.conf"
_ID, _DEVICE, _ROOT, _POINT = 0, 2, 3, 4
"""Fields of mountinfo (proc(5)): the ID of a mount, its device, the file on that, and where it is mounted."""
_OWN_MOUNTS: Final = Path("/proc/self/mountinfo")
_LARGEST: Final = 1 << 16
_LARGEST_RECORD: Final = 1 << 20
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
            mounts = _parse(mountinfo.read())
        mount_id, source = _mount_id(found), f"/{container_id}/resolv.conf"
        mount = next((one for one in mounts if one[_ID] == mount_id), None)
        if mount is None or mount[_POINT] != _PATH or not mount[_ROOT].endswith(source):
            return FileEdit(obstacle=_NOT_DOCKERS)
        file = open_at(f"/proc/self/fd/{found}", os.O_RDWR)
        text = os.pread(file, _LARGEST, 0).decode("utf-8", "replace")
        edited = edit(text, _host_config(found, mount))
        if edited.content is not None:
            content = edited.content.encode()
            os.pwrite(file, content, 0)  # first: if the daemon is killed in between, old lines follow the new ones
            os.ftruncate(file, len(content))
    return edited


def _host_config(descriptor: int, mount: Sequence[str]) -> JsonObject | None:
    """Return what the container was made with; None if that cannot be read.

    dockerd writes it beside the file that it mounts, before it starts the container. The API does not say it at that
    time: an inspect waits for the start that waits for us (moby #50586).
    """
    for own in _parse(_OWN_MOUNTS.read_bytes()):
        root = own[_ROOT].rstrip("/")
        if own[_DEVICE] == mount[_DEVICE] and mount[_ROOT].startswith(f"{root}/"):
            file = Path(own[_POINT] + mount[_ROOT].removeprefix(root))
            with suppress(OSError, JsonError):  # another file system may be mounted on the way
                if os.path.samestat(file.stat(), os.fstat(descriptor)):
                    return as_object(parse_json(_read(file.with_name(_RECORD))), _RECORD)
    return None


def _read(path: Path) -> bytes:
    """Return a regular file, as far as it is not too long; a container may have made what is called so."""
    with ExitStack() as stack:
        file = _open(stack, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        return os.pread(file, _LARGEST_RECORD, 0) if stat.S_ISREG(os.fstat(file).st_mode) else b""


def _parse(mountinfo: bytes) -> Sequence[Sequence[str]]:
    return [line.split() for line in mountinfo.decode("utf-8", "replace").splitlines()]


def _mount_id(descriptor: int) -> str:
    """Return the ID of the mount that an open file is on (proc(5), fdinfo)."""
    fields = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").split()
    return fields[fields.index("mnt_id:") + 1]


def _open(stack: ExitStack, path: str | Path, flags: int, directory: int | None = None) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=directory)
    stack.callback(os.close, descriptor)
    return descriptor
