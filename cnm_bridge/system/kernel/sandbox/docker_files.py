# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads what dockerd has stored about a container, beside the files that it mounts into the container.

The API does not say it while a container starts: an inspect waits for the start that waits for us (moby #50586).
dockerd writes the files when the container is made, and mounts `hosts`, `hostname` and `resolv.conf` from the same
directory.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, as_object, parse_json

ID, DEVICE, ROOT, POINT = 0, 2, 3, 4
"""Fields of mountinfo (proc(5)): the ID of a mount, its device, the file on that, and where it is mounted."""

_OWN_MOUNTS: Final = Path("/proc/self/mountinfo")
_LARGEST: Final = 1 << 20
_MOUNTED: Final = ("/resolv.conf", "/hostname", "/hosts")

Mount = Sequence[str]
"""The fields of a line of mountinfo."""


def read_stored(process: Path, container_id: str, name: str) -> JsonObject | None:
    """Return a document of dockerd's about a container; None if it is out of our sight, or cannot be read.

    Args:
        process: The directory of the container's first process in `/proc`.
        container_id: The ID of the container, which is in the paths of dockerd's files.
        name: The document, such as `config.v2.json`.

    Raises:
        OSError: The process has ended.
    """
    wanted = tuple(f"/{container_id}{mounted}" for mounted in _MOUNTED)
    mounts = parse_mounts((process / "mountinfo").read_bytes())
    found = (path for mount in mounts if mount[ROOT].endswith(wanted) for path in paths_of(mount))
    return next((document for path in found if (document := read_beside(path, name)) is not None), None)


def parse_mounts(mountinfo: bytes) -> Sequence[Mount]:
    """Return the mounts in the content of a file `mountinfo`."""
    return [line.split() for line in mountinfo.decode("utf-8", "replace").splitlines()]


def paths_of(mount: Mount) -> Iterator[Path]:
    """Yield where a file that is mounted in another mount namespace may be found in ours."""
    for own in parse_mounts(_OWN_MOUNTS.read_bytes()):
        root = own[ROOT].rstrip("/")
        if own[DEVICE] == mount[DEVICE] and mount[ROOT].startswith(f"{root}/"):
            yield Path(own[POINT] + mount[ROOT].removeprefix(root))


def read_beside(path: Path, name: str) -> JsonObject | None:
    """Return a document in the directory of a file; None if it is no regular file, too long, or no JSON object."""
    try:
        descriptor = os.open(path.with_name(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_LARGEST) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        return as_object(parse_json(content), name)
    except (OSError, JsonError):
        return None
