# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tables of samples."""

import pytest

from tests.bench.statistics import Series, render_table


@pytest.mark.parametrize(
    ("samples", "median", "p95"), [([4.0], 4.0, 4.0), ([2.0, 4.0], 3.0, 3.9), ([1.0, 2.0, 9.0], 2.0, 8.3)]
)
def test_a_table_of_few_samples(samples: list[float], median: float, p95: float) -> None:
    """One sample is enough for median and percentile."""
    series = Series(samples)
    assert series.median_ms == median
    assert series.p95_ms == pytest.approx(p95)
    assert f"{median:8.1f}  {p95:8.1f}" in render_table("title", {"name": series})
