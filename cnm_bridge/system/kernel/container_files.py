# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The files that dockerd keeps for a container: reads its documents, edits what it mounts, such as `/etc/hosts`.

dockerd mounts `hosts`, `hostname` and `resolv.conf` from the container's directory into the container. The mounts of a
process of the container tell which directory of this host that is. The file systems of the container are not touched:
they may hang, be read-only, or lead elsewhere by a symbolic link. The path on the host is walked without following one,
because a privileged container chooses what it mounts.

dockerd stores its documents when the container is made. The API does not have them while the container starts: an
inspect waits for the start that waits for us (moby #50586).
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from errno import ENOENT
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from cni_bridge_spec import JsonError, JsonObject, as_object, parse_json
from cnm_bridge.core.errors import FileKept, NotDockersFile

_OWN: Final = Path("/proc/self")
_ID, _DEVICE, _ROOT, _POINT = 0, 2, 3, 4
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_OF_A_CONTAINER: Final = re.compile(r"/([0-9a-f]{64})/(hosts|hostname|resolv\.conf)$")
"""What a file that dockerd mounts is called, in the directory of the container's ID."""
_LARGEST_DOCUMENT: Final = 1 << 20
_LARGEST_FILE: Final = 1 << 16

FileEdit: TypeAlias = Callable[[str, JsonObject | None], str]
"""Receives the content of a file and dockerd's `config.v2.json` of its container, None if that cannot be read; returns
the new content. Raises `FileKept` if the file has to stay as it is."""


class Mount(NamedTuple):
    """A mount: its ID, its device, the directory or file of the device that it shows, and where it is."""

    id: str
    device: str
    root: str
    point: str


def read_mounts(process: Path = _OWN) -> Sequence[Mount]:
    """Return the mounts that a process sees, a later one over an earlier one at the same place (proc(5)).

    Any user may mount a file system of his own (fusermount), at a path with any characters. The kernel escapes space,
    tab, line feed and backslash only, so nothing else separates lines and fields. Raise `OSError` if the process has
    ended.
    """
    lines = (line.split(b" ") for line in (process / "mountinfo").read_bytes().split(b"\n") if line)
    return [Mount(*(_plain(line[field]) for field in (_ID, _DEVICE, _ROOT, _POINT))) for line in lines]


def has_container_files(process: Path) -> bool:
    """Return whether a process sees files that dockerd mounts in containers; raise `OSError` if it has ended."""
    return any(map(_container_of, read_mounts(process)))


def edit_container_file(process: Path, name: str, edit: FileEdit) -> bool:
    """Edit a file below `/etc` in place; return whether it has changed.

    `process` is the directory of a process of the container in `/proc`.

    Raises:
        NotDockersFile: Another file is mounted there (`-v FILE:/etc/hosts`).
        FileKept: It is too large, or the error of `edit`.
        OSError: The process has ended, or the file cannot be written, or is not visible on this host.
    """
    mounts = [mount for mount in read_mounts(process) if mount.point == f"/etc/{name}"]
    if not mounts or _container_of(mounts[-1]) is None:  # the last one covers the others
        raise NotDockersFile(name)
    with ExitStack() as stack:
        directory = _open_directory(stack, mounts[-1])
        descriptor = _open_file(stack, name, os.O_RDWR, directory)
        if descriptor is None:
            raise NotDockersFile(name)
        data = os.pread(descriptor, _LARGEST_FILE + 1, 0)
        if len(data) > _LARGEST_FILE:  # the container has written it
            raise FileKept(f"it is larger than {_LARGEST_FILE >> 10} KiB")
        edited = edit(data.decode("utf-8", "surrogateescape"), _read_document(directory, "config.v2.json"))
        content = edited.encode("utf-8", "surrogateescape")
        if content == data:
            return False
        os.pwrite(descriptor, content, 0)  # first: if the daemon is killed now, old lines follow the new ones
        os.ftruncate(descriptor, len(content))
    return True


def read_stored(process: Path, container_id: str, name: str) -> JsonObject | None:
    """Return a document of dockerd's about a container, such as `config.v2.json`; None if it cannot be read here.

    `process` is the directory of a process of the container in `/proc`. Raise `OSError` if the process has ended.
    """
    for mount in read_mounts(process):
        if _container_of(mount) == container_id:
            with suppress(OSError), ExitStack() as stack:
                return _read_document(_open_directory(stack, mount), name)
    return None


def read_host_config(data_directory: Path, container_id: str) -> JsonObject | None:
    """Return `hostconfig.json` of a container that may have no process yet; None if it cannot be read.

    `data_directory` is where dockerd stores its data, see `EngineDescription`.
    """
    with suppress(OSError), ExitStack() as stack:
        directory = _open(stack, str(data_directory / "containers" / container_id), os.O_PATH | os.O_DIRECTORY)
        return _read_document(directory, "hostconfig.json")
    return None


def _container_of(mount: Mount) -> str | None:
    """Return the ID of the container whose file dockerd has mounted; None if it is another mount."""
    found = _OF_A_CONTAINER.search(mount.root)
    return found[1] if found is not None and mount.point == f"/etc/{found[2]}" else None


def _open_directory(stack: ExitStack, mount: Mount) -> int:
    """Return a descriptor of the directory, on this host, of a file that is mounted in a container.

    Raise `OSError` if it is not visible here.
    """
    directory = Path(mount.root).parent
    for own in read_mounts():
        if own.device == mount.device and directory.is_relative_to(own.root):
            with suppress(OSError):
                descriptor = _walk(stack, Path(own.point) / directory.relative_to(own.root))
                if _mount_id(descriptor) == own.id:  # no other file system is mounted on the way
                    return descriptor
    raise FileNotFoundError(ENOENT, "mounted nowhere on this host", mount.root)


def _open_file(stack: ExitStack, name: str, flags: int, directory: int) -> int | None:
    """Return a descriptor of a file in a directory, which the stack closes; None if it is no regular file."""
    descriptor = _open(stack, name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, directory)
    return descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _read_document(directory: int, name: str) -> JsonObject | None:
    """Return a document in a directory; None if it is no regular file, too long, or no JSON object."""
    with suppress(OSError, JsonError), ExitStack() as stack:
        file = _open_file(stack, name, os.O_RDONLY, directory)
        if file is not None:
            return as_object(parse_json(os.pread(file, _LARGEST_DOCUMENT, 0)), name)
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


def _plain(field: bytes) -> str:
    """Return a field without its escapes: a space is written as an octal number."""
    if b"\\" not in field:
        return os.fsdecode(field)
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field))
