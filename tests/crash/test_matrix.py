# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""SIGKILL of the daemon at every boundary between two effects of a call, and at those of the recovery after it.

Afterwards nothing is left behind, each endpoint is either gone or complete, and the neighbour has its network. With
CNI_BRIDGE_CRASH=full (`make crashfull`) every pair of boundaries is tried, otherwise a random choice, which
CNI_BRIDGE_SEED repeats.
"""

import os
import random
from collections.abc import Mapping
from typing import Final

import pytest

from tests.crash.extent import FULL
from tests.crash.host import Host
from tests.crash.lists import LISTS
from tests.crash.matrix import Call, try_cell
from tests.lab import Lab

pytestmark = pytest.mark.timeout(3600)

SEED: Final = int(os.environ.get("CNI_BRIDGE_SEED") or random.SystemRandom().randrange(10**6))
PAIRS: Final = 20
"""How many pairs of boundaries are tried for each call and list."""


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("kind", LISTS)
def test_death_at_every_boundary(lab: Lab, kind: str, call: Call) -> None:
    """A death at any boundary of a call, and another one during the recovery, leave nothing behind and lose nothing."""
    chance = random.Random(SEED)  # noqa: S311 - it must be repeatable, not secret
    print(f"to repeat this choice: CNI_BRIDGE_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    with Host(lab, LISTS[kind]) as host:
        every = range(1, 1 + len(try_cell(host, call, 0).reached))
        assert len(every) > 1, "at most one boundary: is anything counted?"
        lengths = {boundary: len(try_cell(host, call, boundary).recovery) for boundary in every}
        pairs = [(boundary, again) for boundary, length in lengths.items() for again in range(1, 1 + length)]
        chosen = pairs if FULL or not pairs else [_choose(chance, lengths) for _ in range(PAIRS)]
        died = 0
        for boundary, again in chosen:
            cell = try_cell(host, call, boundary, again)
            died += cell.died_again
            assert cell.died_again or cell.cut_off, f"no boundary {again} in recovery from {boundary}"
        assert died >= len(chosen) / 2, f"it died at only {died} of {len(chosen)} pairs"
        assert host.endpoint_ids() == (host.neighbour.id,), "records are left behind"
        print(f"{kind}, {call}: {len(every)} boundaries, died at {died} pairs, of {len(pairs)}")  # noqa: T201


def _choose(chance: random.Random, lengths: Mapping[int, int]) -> tuple[int, int]:
    """Choose a pair, the same for the same seed even if the recovery has more boundaries the next time."""
    boundary = chance.choice([boundary for boundary, length in lengths.items() if length])
    return boundary, 1 + int(chance.random() * lengths[boundary])
