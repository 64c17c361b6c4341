# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What an operator must be told about the state that was found."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Damage that was met, and what was done about it.

    Attributes:
        what: What was damaged, and how.
        lost: IDs of networks and endpoints that are damaged and not there any more; removed ones may be among them.
        outdated: IDs of those that may be there as they once were.
        copy: Where what was found is kept.
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
