# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a soak did, in figures."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Figures"]


@dataclass(slots=True)
class Figures:
    """What was done.

    Attributes:
        operations: By kind.
        outcomes: `done`, `refused`, `failed` (with something killed meanwhile).
        kills: By what was killed.
        checkpoints: How often the whole machine was compared.
        helped: What Docker itself was left with after a kill, and was helped out of as an operator would.
        looks: How often all running containers were looked at after a round.
        looked_into: How many containers that were, in all.
        looking_s: How long it took, in all.
        slowest_s: The longest time that machine and model took to agree.
        differences: What did not agree in the end; empty where all is well.
        duration_s: How long it all took.
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
    differences: tuple[str, ...] = ()
    duration_s: float = 0.0

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.operations.total()} operations in {self.duration_s:.0f} s: {_render(self.operations)}",
                f"outcomes: {_render(self.outcomes)}",
                f"{self.kills.total()} kills: {_render(self.kills)}",
                f"Docker was helped {self.helped.total()} times: {_render(self.helped)}",
                f"{self.checkpoints} checkpoints, the slowest agreed after {self.slowest_s:.1f} s",
                f"{self.looks} looks into {self.looked_into} running containers, in all {self.looking_s:.0f} s",
                f"{len(self.differences)} differences",
            )
        )


def _render(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common()) or "none"
