# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Metrics of `cni-egress` with every kind of figure."""

from cni_egress.durations import Durations
from cni_egress.metrics import Figures, render_metrics


def render_example() -> bytes:
    """Return the answer to a scrape."""
    durations = Durations()
    for seconds in (0.0004, 0.001, 0.003, 60.0):
        durations.add(seconds)
    return render_metrics(
        Figures(
            queries={("agents", "noerror"): 310, ("", "malformed"): 1},
            refused={("agents", "name", "name not allowed"): 12},
            noticed={("probe", "connection", "destination not allowed"): 3},
            answers=durations.cumulative,
            answers_s=durations.sum_s,
            containers={("agents",): 2},
            names={("agents",): 4},
            addresses={("agents",): 9},
            repairs=1,
            upstream_is_up=True,
        )
    )
