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
from enum import StrEnum
from functools import partial
from typing import Final

import pytest

from cni_bridge_spec import get_str
from tests.crash.endpoint import Answer
from tests.crash.extent import FULL, WIDE
from tests.crash.host import Host
from tests.crash.lists import DHCP, LAN, LISTS
from tests.crash.matrix import Story, try_cell
from tests.crash.moved import Call, MovedStory
from tests.crash.sandbox import Sandbox
from tests.crash.way import Way
from tests.lab import Lab, LabError, wait_until
from tests.system.dhcp_lan import Lan

FAILING: Final = "failing"
"""The plugin at the end of the list whose ADD fails."""


class SandboxCall(StrEnum):
    """The call during which the daemon dies. The container runs before and after, unless the value says otherwise."""

    CREATE = "create"
    JOIN = "join"
    FAILED_JOIN = "join with a failing plugin"
    DISCONNECT = "leave"
    DELETE_JOINED = "delete without leave"
    END = "leave after the container's end"
    DELETE = "delete after the container's end"


_DELETES: Final = frozenset({SandboxCall.DELETE, SandboxCall.DELETE_JOINED})
_ENDED: Final = frozenset({SandboxCall.END, SandboxCall.DELETE})
_UNJOINED: Final = frozenset({SandboxCall.CREATE, SandboxCall.JOIN, SandboxCall.FAILED_JOIN})


class SandboxStory:
    """A `tests.crash.matrix.Story`."""

    def __init__(self, host: Host, call: SandboxCall) -> None:
        self.name = call.value
        self.deletes = call in _DELETES
        self.is_refused = call is SandboxCall.FAILED_JOIN
        self.endpoint = host.endpoint(f"box{host.next_number()}")
        self._host = host
        self._call = call
        self._sandbox: Sandbox | None = None
        self._before = ""

    def prepare(self) -> None:
        """See `Story`."""
        self._sandbox = Sandbox(self._host.lab, self.endpoint.sandbox)
        self._before = self._sandbox.look()
        if self._call is SandboxCall.CREATE:
            return
        self._create("")
        if self._call in _UNJOINED:
            return
        self._join("")
        if self._call in _ENDED:
            self._sandbox.end_process()
        if self._call is SandboxCall.DELETE:
            assert self.endpoint.leave() == {}

    def send(self) -> Answer:
        """See `Story`."""
        match self._call:
            case SandboxCall.CREATE:
                return self.endpoint.create()
            case SandboxCall.JOIN | SandboxCall.FAILED_JOIN:
                return self.endpoint.join()
            case SandboxCall.DISCONNECT | SandboxCall.END:
                return self.endpoint.leave()
            case SandboxCall.DELETE | SandboxCall.DELETE_JOINED:
                return self.endpoint.delete()

    def check_answer(self, answer: Answer) -> None:
        """See `Story`."""
        assert answer is not None
        if self._call is SandboxCall.FAILED_JOIN:
            assert f'"{FAILING}"' in get_str(answer, "Err")
        else:
            assert "Err" not in answer, answer

    def finish(self) -> None:
        """See `Story`."""
        if not self.deletes:
            self._delete("")
        self.go_on()

    def go_on(self) -> None:
        """Remove the sandbox of a container that has ended."""
        if self._call in _ENDED and self._sandbox is not None:
            self._sandbox.remove()
            self._sandbox = None

    def delete_complete(self, where: str) -> None:
        """Join an endpoint that has not been joined; a joined one has its network until a call ends that."""
        if self._call in _UNJOINED and self._host.phase(self.endpoint) == "ready":
            self._create(where)
            if self._call is not SandboxCall.FAILED_JOIN:
                self._join(where)
        if self._call in _UNJOINED | {SandboxCall.DELETE_JOINED} and self._host.phase(self.endpoint) == "joined":
            assert self.endpoint.has_network(), f"{where}: the container has no network"
        if self._call not in {SandboxCall.JOIN, SandboxCall.DELETE_JOINED}:  # others begin with Leave
            assert self.endpoint.leave() == {}, where
        self._delete(where)

    def end(self, where: str) -> None:
        """The sandbox of a running container is as it was before."""
        if self._sandbox is not None:
            after = self._sandbox.look()
            assert after == self._before, f"{where}; the sandbox is\n{after}\nand was\n{self._before}"
            self._sandbox.remove()

    def _create(self, where: str) -> None:
        answer = self.endpoint.create()
        assert answer is not None, where
        assert "Interface" in answer, f"{where}: {answer}"

    def _join(self, where: str) -> None:
        answer = self.endpoint.join()
        assert answer is not None, where
        assert "InterfaceName" not in answer, f"{where}: the link is moved"
        assert "Gateway" in answer, f"{where}: {answer}"
        self.endpoint.move_in()

    def _delete(self, where: str) -> None:
        assert self.endpoint.delete() == {}, where
        self._host.wait_gone(self.endpoint)


class LeaseStory(SandboxStory):
    """The same with a lease of a DHCP server, which at the end has only the leases that it had before."""

    def __init__(self, host: Host, call: SandboxCall, lan: Lan) -> None:
        super().__init__(host, call)
        self._lan = lan
        self._leases = lan.leases()

    def end(self, where: str) -> None:
        """See `SandboxStory`."""
        super().end(where)
        try:
            wait_until(lambda: self._lan.leases() == self._leases, "RELEASE")
        except LabError as exc:
            daemon = self._lan.daemon
            raise AssertionError(f"{where}: {exc}; {daemon.log() if daemon else None}") from exc


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
