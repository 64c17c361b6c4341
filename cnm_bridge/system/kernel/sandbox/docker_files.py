# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the directory in which dockerd keeps the files of a container, and reads what dockerd has stored there.

dockerd mounts `hosts`, `hostname` and `resolv.conf` from that directory into the container. The mounts of a process of
the container tell which directory of this host that is. The file systems of the container are not touched: they may
hang, be read-only, or lead elsewhere by a symbolic link. The path on the host is walked without following one, because
a privileged container chooses what it mounts.

dockerd stores its documents when the container is made. The API does not have them while the container starts: an
inspect waits for the start that waits for us (moby #50586).
"""

import os
import re
import stat
from contextlib import ExitStack, suppress
from errno import ENOENT
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, as_object, parse_json
from cnm_bridge.system.kernel.mounts import Mount, read_mounts

_OF_A_CONTAINER: Final = re.compile(r"/([0-9a-f]{64})/(hosts|hostname|resolv\.conf)$")
"""What a file that dockerd mounts is called, in the directory of the container's ID."""
_LARGEST: Final = 1 << 20


def container_of(mount: Mount) -> str | None:
    """Return the ID of the container whose file dockerd has mounted; None if it is another mount."""
    found = _OF_A_CONTAINER.search(mount.root)
    return found[1] if found is not None and mount.point == f"/etc/{found[2]}" else None


def read_stored(process: Path, container_id: str, name: str) -> JsonObject | None:
    """Return a document of dockerd's about a container; None if it is not visible here, or cannot be read.

    Args:
        process: The directory of a process of the container in `/proc`.
        container_id: The ID of the container.
        name: The document, such as `config.v2.json`.

    Raises:
        OSError: The process has ended.
    """
    for mount in read_mounts(process):
        if container_of(mount) == container_id:
            with suppress(OSError), ExitStack() as stack:
                return read_document(open_directory(stack, mount), name)
    return None


def open_directory(stack: ExitStack, mount: Mount) -> int:
    """Return a descriptor of the directory, on this host, of a file that is mounted in a container.

    Args:
        stack: Closes the descriptor.
        mount: The mount of the file.

    Raises:
        OSError: It is not visible here.
    """
    directory = Path(mount.root).parent
    for own in read_mounts():
        if own.device == mount.device and directory.is_relative_to(own.root):
            with suppress(OSError):
                descriptor = _walk(stack, Path(own.point) / directory.relative_to(own.root))
                if _mount_id(descriptor) == own.id:  # no other file system is mounted on the way
                    return descriptor
    raise FileNotFoundError(ENOENT, "mounted nowhere on this host", mount.root)


def open_file(stack: ExitStack, name: str, flags: int, directory: int) -> int | None:
    """Return a descriptor of a file in a directory, which the stack closes; None if it is no regular file.

    Raises:
        OSError: It cannot be opened.
    """
    descriptor = _open(stack, name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, directory)
    return descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def read_document(directory: int, name: str) -> JsonObject | None:
    """Return a document in a directory; None if it is no regular file, too long, or no JSON object."""
    with suppress(OSError, JsonError), ExitStack() as stack:
        file = open_file(stack, name, os.O_RDONLY, directory)
        if file is not None:
            return as_object(parse_json(os.pread(file, _LARGEST, 0)), name)
    return None


def _walk(stack: ExitStack, path: Path) -> int:
    """Return a descriptor of an absolute path of directories; no symbolic link is followed."""
    descriptor = _open(stack, path.anchor, os.O_PATH | os.O_DIRECTORY)
    for name in path.relative_to(path.anchor).parts:
        descriptor = _open(stack, name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, descriptor)
    return descriptor


def _mount_id(descriptor: int) -> str:
    """Return the ID of the mount that an open file is on (proc(5), fdinfo)."""
    fields = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").split()
    return fields[fields.index("mnt_id:") + 1]


def _open(stack: ExitStack, path: str, flags: int, directory: int | None = None) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=directory)
    stack.callback(os.close, descriptor)
    return descriptor
