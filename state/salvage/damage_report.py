# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A report to the operator about damaged state."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Damage that was found.

    Attributes:
        what: What was damaged, and how.
        lost: IDs of networks and endpoints that were lost; some may have been removed before.
        outdated: IDs of networks and endpoints whose records may be outdated.
        copy: Path of the damaged copy.
    """

    what: str
    lost: tuple[str, ...]
    outdated: tuple[str, ...]
    copy: Path

    def __str__(self) -> str:
        text = f"{self.what}; what was found is kept in {self.copy}"
        if self.lost:
            text += f"; lost, unless removed before: {', '.join(self.lost)}"
        if self.outdated:
            text += f"; perhaps of an earlier moment: {', '.join(self.outdated)}"
        return text
