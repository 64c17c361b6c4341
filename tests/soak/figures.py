# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The figures of a soak."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """What a soak has done.

    Attributes:
        operations: By kind.
        outcomes: `done`, `refused`, `failed` (with something killed meanwhile).
        kills: By what was killed.
        checkpoints: How often the whole machine was compared.
        helped: Inconsistencies of Docker itself after a kill, repaired as an operator would.
        looks: How often all running containers were checked after a round.
        looked_into: How many containers were checked, in all.
        looking_s: How long the checks took, in all.
        slowest_s: The longest time that machine and model took to agree.
        slowest_call_s: The longest time that an operation took on networks without slow plugins.
        differences: The differences that were found; empty in a successful soak.
        duration_s: How long the soak took.
    """

    operations: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    checkpoints: int = 0
    helped: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    looked_into: int = 0
    looking_s: float = 0.0
    slowest_s: float = 0.0
    slowest_call_s: float = 0.0
    differences: tuple[str, ...] = ()
    duration_s: float = 0.0

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.operations.total()} operations in {self.duration_s:.0f} s: {_render(self.operations)}",
                f"outcomes: {_render(self.outcomes)}",
                f"{self.kills.total()} kills: {_render(self.kills)}",
                f"Docker was repaired {self.helped.total()} times: {_render(self.helped)}",
                f"{self.checkpoints} checkpoints, the slowest agreed after {self.slowest_s:.1f} s",
                f"the slowest operation on networks without slow plugins took {self.slowest_call_s:.1f} s",
                f"{self.looks} checks of {self.looked_into} running containers, in all {self.looking_s:.0f} s",
                f"{len(self.differences)} differences",
            )
        )


def _render(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common()) or "none"
