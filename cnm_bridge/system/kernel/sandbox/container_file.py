# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Edits the files that dockerd mounts in a container, such as `/etc/hosts`, where dockerd itself writes them."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from cnm_bridge.core.planning.container_file import ContainerFile, ContainerRecord, Edit, FileEdit
from cnm_bridge.system.kernel.mounts import read_mounts
from cnm_bridge.system.kernel.sandbox.docker_files import container_of, open_directory, open_file, read_document

_LARGEST: Final = 1 << 16
_TOO_LARGE: Final = f"it is larger than {_LARGEST >> 10} KiB"


def has_container_files(process: Path) -> bool:
    """Return whether a process sees files that dockerd mounts in containers.

    Args:
        process: The directory of the process in `/proc`.

    Raises:
        OSError: The process has ended.
    """
    return any(map(container_of, read_mounts(process)))


def edit_container_file(process: Path, file: ContainerFile, edit: Edit) -> FileEdit | None:
    """Edit a file in place; return what `edit` returned.

    None if another file is mounted there (`-v FILE:/etc/hosts`), which is left alone.

    Args:
        process: The directory of a process of the container in `/proc`.
        file: The file.
        edit: Returns the new content.

    Raises:
        OSError: The process has ended, or the file cannot be written, or is not visible on this host.
    """
    mounts = [mount for mount in read_mounts(process) if mount.point == f"/etc/{file.value}"]
    if not mounts or container_of(mounts[-1]) is None:  # the last one covers the others
        return None
    with ExitStack() as stack:
        directory = open_directory(stack, mounts[-1])
        descriptor = open_file(stack, file.value, os.O_RDWR, directory)
        if descriptor is None:
            return None
        data = os.pread(descriptor, _LARGEST + 1, 0)
        if len(data) > _LARGEST:  # the container has written it
            return FileEdit(obstacle=_TOO_LARGE)
        container = ContainerRecord(
            config=read_document(directory, "config.v2.json"), host_config=read_document(directory, "hostconfig.json")
        )
        edited = edit(data.decode("utf-8", "surrogateescape"), container)
        if edited.content is not None:
            content = edited.content.encode("utf-8", "surrogateescape")
            os.pwrite(descriptor, content, 0)  # first: if the daemon is killed now, old lines follow the new ones
            os.ftruncate(descriptor, len(content))
    return edited
