# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The file of a network configuration list."""

from pathlib import Path
from typing import Final

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.whole_file import write_whole

_MODE: Final = 0o644
_SUFFIX: Final = ".conflist"
_FURTHER: Final = "*.conf"


def list_path(directory: Path, name: str) -> Path:
    """Return the path of a new list."""
    return directory / f"{name}{_SUFFIX}"


def find_taken_paths(file: Path) -> frozenset[Path]:
    """Return what exists of a new list's paths: its file, and the folder from which plugins would be added to it."""
    folder = file.with_suffix("")
    taken = {file} if file.exists() or file.is_symlink() else set()
    return frozenset(taken | ({folder} if any(folder.glob(_FURTHER)) else set()))


def write_list(file: Path, text: str) -> None:
    """Write a new list, which every user may read; make its directory if it is missing.

    Raises:
        Refused: The file exists, or cannot be written; nothing is left of it.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode(), mode=_MODE, replaces=False)
    except OSError as exc:
        raise Refused(f"cannot write {file}: {exc.strerror}; nothing was changed") from exc
    except Refused as exc:
        raise Refused(f"{exc}; nothing was changed") from exc
