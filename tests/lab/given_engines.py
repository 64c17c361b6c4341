# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Engines that no Debian suite has, from archives in a directory that `LAB_ENGINES_DIR` names.

An archive `docker-VERSION-ARCHITECTURE.tar.xz` has `docker-VERSION/bin/dockerd` and `…/bin/runc`. The docker command,
containerd and docker-proxy are those of Debian's newest engine. All of it is unpacked into the user's cache, where the
engines of Debian's suites are; the archives are only read.
"""

import lzma
import os
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.lab.debian import FetchError, cache_directory, run_program

VARIABLE: Final = "LAB_ENGINES_DIR"
_SUFFIX: Final = ".tar.xz"
_OWN: Final = {"bin/dockerd": "usr/sbin/dockerd", "bin/runc": "usr/bin/runc"}
_BORROWED: Final = (
    "usr/bin/docker",
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/docker-init",
    "usr/sbin/docker-proxy",
)


def given_archives() -> Sequence[Path]:
    """Return the archives, by name; none if the variable is not set.

    Raises:
        FetchError: The variable does not name a directory.
    """
    directory = os.environ.get(VARIABLE)
    if not directory:
        return ()
    if not Path(directory).is_dir():
        raise FetchError(f"{VARIABLE} names {directory}, which is not a directory")
    return sorted(Path(directory).absolute().glob(f"docker-*{_SUFFIX}"))


def find_given_engine(archive: Path, kind: str) -> Path | None:
    """Return the directory of the engine of an archive that was unpacked before, None if it was not."""
    tree = _tree(archive, kind)
    return tree if tree.is_dir() else None


def unpack_engine(archive: Path, kind: str, newest: Path) -> Path:
    """Unpack an archive into the cache, with the docker command and the containerd of another engine beside it.

    Args:
        archive: One of `given_archives`.
        kind: The directory of the cache where engines are.
        newest: The directory of Debian's newest engine.

    Raises:
        FetchError: It is not such an archive, or does not run on this machine; nothing of it is kept.
    """
    tree = _tree(archive, kind)
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=tree.parent, prefix=".unpacking-") as directory:
        unpacked = Path(directory) / tree.name
        try:
            _unpack(archive, unpacked)
        except (OSError, tarfile.TarError, lzma.LZMAError) as exc:
            raise FetchError(f"{archive} cannot be unpacked: {exc}") from exc
        for name in _BORROWED:
            if (newest / name).exists():
                (unpacked / name).symlink_to((newest / name).resolve())
        for name in _OWN.values():
            run_program(str(unpacked / name), "--version")
        try:
            unpacked.rename(tree)
        except OSError:  # another process was faster
            if not tree.is_dir():
                raise
    return tree


def _unpack(archive: Path, tree: Path) -> None:
    """Write the archive's programs to Debian's paths; everything else in it is ignored."""
    missing = dict(_OWN)
    with tarfile.open(archive, "r:xz") as content:
        for member in content:
            _, _, inside = member.name.partition("/")
            file = content.extractfile(member) if inside in missing and member.isfile() else None
            if file is None:
                continue
            target = tree / missing.pop(inside)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read())
            target.chmod(0o755)
    if missing:
        raise FetchError(f"{archive} has no {' and no '.join(missing)}")


def _tree(archive: Path, kind: str) -> Path:
    return cache_directory(kind) / archive.name.removesuffix(_SUFFIX)
