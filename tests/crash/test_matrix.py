# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""SIGKILL of the daemon at every boundary between two effects of a call, and at those of the recovery after it.

Afterwards nothing is left behind, each endpoint is either gone or complete, and the neighbour has its network. With
CNI_BRIDGE_CRASH=full (`make crashfull`) every pair of boundaries is tried, otherwise a random choice, which
CNI_BRIDGE_SEED repeats; with CNI_BRIDGE_CRASH=wide in all attach modes.
"""

import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import pytest

from tests.crash.extent import FULL, WIDE
from tests.crash.host import Host
from tests.crash.in_sandbox import FAILING, LeaseStory, SandboxCall, SandboxStory
from tests.crash.lists import DHCP, LAN, LISTS
from tests.crash.matrix import Story, try_cell
from tests.crash.moved import Call, MovedStory
from tests.crash.way import Way
from tests.lab import Lab
from tests.system.dhcp_lan import Lan

pytestmark = pytest.mark.timeout(3600)

SEED: Final = int(os.environ.get("CNI_BRIDGE_SEED") or random.SystemRandom().randrange(10**6))
PAIRS: Final = 8
"""How many pairs of boundaries are tried for each call and list."""
KINDS: Final = [*LISTS] if WIDE else ["bridge"]
"""The daemon's own steps hardly depend on the list; `make crashfull` tries all."""
CALLS: Final = tuple(call for call in Call if WIDE or call is not Call.DELETE_JOINED)
"""Nearly all of its steps are those of Leave and of DeleteEndpoint; `make crashfull` tries it, too."""
IN_SANDBOX: Final = [(Way.HYBRID, "bridge"), *([(Way.HYBRID, "ptp")] if WIDE else [])]
LAN_MAC: Final = "02:00:00:00:00:01"
"""Without one, a bridge has the lowest of its links' MACs, and its neighbours lose it when links come and go."""
SANDBOX_PAIRS: Final = PAIRS if WIDE else 0
SANDBOX_CALLS: Final = tuple(call for call in SandboxCall if WIDE or call is not SandboxCall.DELETE_JOINED)
"""Its steps are those after a failed Join, too."""
FAILS: Final = """#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD) echo '{"cniVersion": "1.0.0", "code": 100, "msg": "out of order"}'; exit 1 ;;
esac
"""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_death_at_every_boundary(lab: Lab, kind: str, call: Call) -> None:
    """A death at any boundary of a call, and another one during the recovery, leave nothing behind and lose nothing."""
    with Host(lab, LISTS[kind]) as host:
        _try_all(host, partial(MovedStory, host, call), pairs=PAIRS)


@pytest.mark.parametrize("call", SANDBOX_CALLS)
@pytest.mark.parametrize(("way", "kind"), IN_SANDBOX)
def test_death_while_plugins_run_in_the_sandbox(lab: Lab, way: Way, kind: str, call: SandboxCall) -> None:
    """The same, and the sandbox of a container that keeps running is as it was before."""
    lab.write(f"/opt/cni/bin/{FAILING}", FAILS, mode=0o755)
    with Host(lab, LISTS[kind], way) as host:
        if call is SandboxCall.FAILED_JOIN:
            host.write_list([*LISTS[kind], {"type": FAILING}])
        first = f"end of {FAILING} ADD" if call is SandboxCall.FAILED_JOIN and not WIDE else None  # before: as in Join
        _try_all(host, partial(SandboxStory, host, call), pairs=SANDBOX_PAIRS, first=first)


@pytest.mark.parametrize("call", [Call.JOIN, Call.DELETE] if WIDE else [Call.JOIN])
def test_death_after_a_late_change_to_move(lab: Lab, call: Call) -> None:
    """An endpoint of mode *hybrid* that cannot be attached in its sandbox is like any other one of mode *move*."""
    with Host(lab, LISTS["bridge"], Way.LATE_MOVE) as host:
        _try_all(host, partial(MovedStory, host, call), pairs=SANDBOX_PAIRS)


@pytest.mark.skipif(not WIDE, reason="it takes eight minutes; CNI_BRIDGE_CRASH=wide tries it")
@pytest.mark.parametrize("call", SandboxCall)
def test_death_while_plugins_get_and_release_a_lease(lab: Lab, call: SandboxCall) -> None:
    """The same, and the DHCP server has no lease of an endpoint that is gone."""
    lab.write(f"/opt/cni/bin/{FAILING}", FAILS, mode=0o755)
    lab.run("sh", "-ec", f"ip link add {LAN.bridge} address {LAN_MAC} type bridge; ip link set {LAN.bridge} up")
    lan = Lan(lab, LAN, link=LAN.bridge)
    lan.start_daemon()
    lan.start_server(lease="1h")
    try:
        with Host(lab, DHCP, Way.DIRECT, gateways=[LAN.gateway]) as host:
            if call is SandboxCall.FAILED_JOIN:
                host.write_list([*DHCP, {"type": FAILING}])
            _try_all(host, lambda: LeaseStory(host, call, lan), pairs=SANDBOX_PAIRS)
    finally:
        lan.close()


def _try_all(host: Host, tell: Callable[[], Story], *, pairs: int, first: str | None = None) -> None:
    """Try every boundary, from the first one of this name on, and some pairs of boundaries, or all of them."""
    chance = random.Random(SEED)  # noqa: S311 - it must be repeatable, not secret
    print(f"to repeat this choice: CNI_BRIDGE_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    names = try_cell(host, tell(), 0).reached
    every = range(1 if first is None else 1 + names.index(first), 1 + len(names))
    assert len(every) > 1, "at most one boundary: is anything counted?"
    lengths = {boundary: len(try_cell(host, tell(), boundary).recovery) for boundary in every}
    all_pairs = [(boundary, again) for boundary, length in lengths.items() for again in range(1, 1 + length)]
    chosen = all_pairs if FULL or not all_pairs else [_choose(chance, lengths) for _ in range(pairs)]
    died = 0
    for boundary, again in chosen:
        cell = try_cell(host, tell(), boundary, again)
        died += cell.died_again
        assert cell.died_again or cell.cut_off, f"no boundary {again} in recovery from {boundary}"
    assert died >= len(chosen) / 2, f"it died at only {died} of {len(chosen)} pairs"
    assert host.endpoint_ids() == (host.neighbour.id,), "records are left behind"
    print(f"{len(every)} boundaries, died at {died} pairs, of {len(all_pairs)}")  # noqa: T201


def _choose(chance: random.Random, lengths: Mapping[int, int]) -> tuple[int, int]:
    """Choose a pair, the same for the same seed even if the recovery has more boundaries the next time."""
    boundary = chance.choice([boundary for boundary, length in lengths.items() if length])
    return boundary, 1 + int(chance.random() * lengths[boundary])
