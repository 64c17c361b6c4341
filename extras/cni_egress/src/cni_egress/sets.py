# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Sets of entries, such as `@github`: files that an operator keeps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cni_egress.policy import BadEntry

__all__ = ["read_set"]

_SETS: Final = Path("/etc/cni-bridge/egress.d")


def read_set(name: str) -> Sequence[str]:
    """Return the entries of a set: the lines of its file, without comments.

    Raises:
        BadEntry: There is no such file, or it cannot be read.
    """
    path = _SETS / name
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8"
        raise BadEntry(f"'@{name}': {path}: {reason}; a set is a file with an entry in each line") from exc
    return [entry for line in lines if (entry := line.partition("#")[0].strip())]
