# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Samples in, a table out; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles


@dataclass(slots=True)
class Series:
    """Samples of one quantity, in milliseconds."""

    samples: list[float] = field(default_factory=list)

    def add(self, value_ms: float) -> None:
        """Add a sample."""
        self.samples.append(value_ms)

    def minus(self, other: "Series") -> "Series":
        """Return the sample-wise difference within each round."""
        return Series([a - b for a, b in zip(self.samples, other.samples, strict=True)])

    @property
    def median_ms(self) -> float:
        """The median."""
        return median(self.samples)

    @property
    def p95_ms(self) -> float:
        """The 95th percentile; of a single sample, that sample."""
        if len(self.samples) == 1:
            return self.samples[0]
        return quantiles(self.samples, n=20, method="inclusive")[-1]


def render_table(title: str, rows: Mapping[str, Series]) -> str:
    """Return a table of medians and 95th percentiles."""
    width = max(len(name) for name in rows)
    head = f"{'':{width}}  {'median':>8}  {'p95':>8}   (ms)"
    lines: Sequence[str] = [f"{name:{width}}  {s.median_ms:8.1f}  {s.p95_ms:8.1f}" for name, s in rows.items()]
    return "\n".join([title, head, *lines])
