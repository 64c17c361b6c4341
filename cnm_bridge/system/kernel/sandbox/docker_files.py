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
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from errno import ENOENT
from pathlib import Path
from typing import Final, NamedTuple

from cni_bridge_spec import JsonError, JsonObject, as_object, parse_json

_OWN_MOUNTS: Final = Path("/proc/self/mountinfo")
_ID, _DEVICE, _ROOT, _POINT = 0, 2, 3, 4
"""Fields of mountinfo (proc(5)): the ID of a mount, its device, the file on that, and where it is mounted."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_OF_A_CONTAINER: Final = re.compile(r"/([0-9a-f]{64})/(hosts|hostname|resolv\.conf)$")
"""What a file that dockerd mounts is called, in the directory of the container's ID."""
_LARGEST: Final = 1 << 20


class Mount(NamedTuple):
    """A mount: its ID, its device, the directory or file of the device that it shows, and where it is."""

    id: str
    device: str
    root: str
    point: str

    @property
    def container_id(self) -> str | None:
        """The ID of the container whose file dockerd has mounted here; None if it has not."""
        found = _OF_A_CONTAINER.search(self.root)
        return found[1] if found is not None and self.point == f"/etc/{found[2]}" else None


def read_mounts(process: Path) -> Sequence[Mount]:
    """Return the mounts that a process sees.

    Args:
        process: Its directory in `/proc`.

    Raises:
        OSError: It has ended.
    """
    return _parse(process / "mountinfo")


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
        if mount.container_id == container_id:
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
    for own in _parse(_OWN_MOUNTS):
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


def _parse(mountinfo: Path) -> Sequence[Mount]:
    lines = (os.fsdecode(line).split() for line in mountinfo.read_bytes().splitlines())
    return [Mount(line[_ID], line[_DEVICE], _plain(line[_ROOT]), _plain(line[_POINT])) for line in lines]


def _plain(text: str) -> str:
    """Return a path of mountinfo without its escapes: a space is written as an octal number."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _mount_id(descriptor: int) -> str:
    """Return the ID of the mount that an open file is on (proc(5), fdinfo)."""
    fields = Path(f"/proc/self/fdinfo/{descriptor}").read_text("ascii").split()
    return fields[fields.index("mnt_id:") + 1]


def _open(stack: ExitStack, path: str, flags: int, directory: int | None = None) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=directory)
    stack.callback(os.close, descriptor)
    return descriptor
