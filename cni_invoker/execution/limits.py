# SPDX-License-Identifier: Apache-2.0
"""Limits on plugins: time, output, and how many run at once.

Plugins that hang on one network must not stop those of others, so:

* A network runs at most `count` executions.
* All networks together run at most `count` executions that began less than `SLOW_S` ago. Half as many more may run,
  each as the only one of its network.
* The next execution is one of the network that runs the fewest. If several networks run equally few, the first arrival
  is next.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, assert_never

from cni_invoker.documents.versions import Verb

_DHCP: Final = "dhcp"


def _executions() -> int:
    # Measured with bridge: throughput is best at two executions per CPU, and falls when many more compete.
    return 2 * len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a `Runtime`.

    Attributes:
        add_s: Limit for one plugin's ADD, in seconds, from its start.
        dhcp_s: A shorter limit for ADD with the IPAM plugin `dhcp`, which waits for minutes if no server answers.
        delete_s: Limit for one plugin's DEL.
        check_s: Limit for one plugin's CHECK.
        port_s: Extra time for ADD, DEL and CHECK per port that the plugin publishes (`portmap` 1.9.1 took 10 s for 300
            ports on two processors, more than a minute for 1000).
        ports_s: Upper limit of the extra time for ports.
        gc_s: Limit for one plugin's GC.
        status_s: Limit for one plugin's STATUS.
        version_s: Limit for one plugin's VERSION.
        wait_s: How long an operation waits for other operations on the same container or for GC on the same network,
            and an execution for a free slot.
        retry_pauses_s: Pauses before each retry of a plugin that reports "try again later" (error code 11).
        grace_s: Time between SIGTERM and SIGKILL, and for a process that keeps the output open after the plugin's end.
        stdout_bytes: How much standard output is kept; a longer result is an error.
        result_entries: How many links, addresses and routes a result may have; None: any number.
        stderr_bytes: How much standard error is kept, from its end.
        stderr_lines: How many lines of that an error shows. With 0, errors quote nothing but a CNI error, because the
            rest may contain credentials; it is logged at level debug.
        executions: How many plugins of one network run at once for DEL, and as many for everything else. All networks
            together run at most as many that began in the last two seconds, and half as many more, each as the only one
            of its network.
        descriptors: The plugin's soft limit of open descriptors, for a caller that has raised its own; None: inherited.
        oom_score: The plugin's `oom_score_adj` (proc(5)), for a caller that has lowered its own; None: inherited.

    Raises:
        ValueError: No plugin could ever run.
    """

    add_s: float = 60.0
    dhcp_s: float | None = None
    delete_s: float = 60.0
    check_s: float = 60.0
    port_s: float = 0.25
    ports_s: float = 600.0
    gc_s: float = 60.0
    status_s: float = 10.0
    version_s: float = 10.0
    wait_s: float = 120.0
    retry_pauses_s: tuple[float, ...] = (0.1, 0.5, 2.0)
    grace_s: float = 2.0
    stdout_bytes: int = 4 << 20
    result_entries: int | None = None
    stderr_bytes: int = 64 << 10
    stderr_lines: int = 20
    executions: int = field(default_factory=_executions)
    descriptors: int | None = None
    oom_score: int | None = None

    def __post_init__(self) -> None:
        if self.executions < 1:
            raise ValueError(f"no plugin could run: the limit executions is {self.executions}")

    def timeout_s(self, verb: Verb, ports: int = 0, *, ipam: str | None = None) -> float:
        """Return the limit for one execution of `verb`, in seconds.

        Args:
            verb: The operation.
            ports: The number of ports to publish.
            ipam: The type of the plugin's IPAM plugin, None if it has none.
        """
        ports_s = min(ports * self.port_s, self.ports_s)
        match verb:
            case Verb.ADD:
                add_s = self.add_s + ports_s
                return add_s if ipam != _DHCP or self.dhcp_s is None else min(add_s, self.dhcp_s)
            case Verb.DEL:
                return self.delete_s + ports_s
            case Verb.CHECK:
                return self.check_s + ports_s
            case Verb.GC:
                return self.gc_s
            case Verb.STATUS:
                return self.status_s
            case Verb.VERSION:
                return self.version_s
            case _:
                assert_never(verb)


SLOW_S: Final = 2.0
"""After this time an execution no longer counts against other networks; most take less than a tenth of it."""


class Turn:
    """One execution of a network that waits or runs, with its number in the order of arrival."""

    def __init__(self, network: str, number: int) -> None:
        self.network = network
        self.number = number
        self.is_quick = False  # it runs and counts against other networks
        self.admitted = asyncio.Event()


class NetworkShares:
    """Counts those that run, by the first two rules; without a clock and without tasks."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._reserved = (count + 1) // 2
        self._quick = 0
        self._running: Counter[str] = Counter()

    def running(self, network: str) -> int:
        """Return how many of a network run."""
        return self._running[network]

    def admits(self, network: str) -> bool:
        """Return whether one more of a network may run."""
        running = self._running[network]
        return running < self._count and self._quick < self._count + (0 if running else self._reserved)

    def begin(self, turn: Turn) -> None:
        """Count one more."""
        self._running[turn.network] += 1
        self._quick += 1
        turn.is_quick = True

    def slow_down(self, turn: Turn) -> None:
        """Count one that runs for its own network only."""
        if turn.is_quick:
            turn.is_quick = False
            self._quick -= 1

    def end(self, turn: Turn) -> None:
        """Count one less."""
        self.slow_down(turn)
        self._running[turn.network] -= 1
        if not self._running[turn.network]:
            del self._running[turn.network]


class Admission:
    """Those that wait and those that run, by all three rules; without a clock and without tasks."""

    def __init__(self, count: int) -> None:
        self.shares = NetworkShares(count)
        self._arrived = 0
        self._waiting: dict[str, deque[Turn]] = {}

    def arrive(self, network: str) -> Turn:
        """Add an execution to those that wait; the caller calls `admit` next."""
        self._arrived += 1
        turn = Turn(network, self._arrived)
        self._waiting.setdefault(network, deque()).append(turn)
        return turn

    def admit(self) -> Iterator[Turn]:
        """Yield those that may run now; they count as running."""
        while first := [line[0] for network, line in self._waiting.items() if self.shares.admits(network)]:
            turn = min(first, key=lambda turn: (self.shares.running(turn.network), turn.number))
            self._remove(turn)
            self.shares.begin(turn)
            yield turn

    def give_up(self, turn: Turn) -> bool:
        """Remove one that waits; return False if it has been admitted."""
        if turn not in self._waiting.get(turn.network, ()):
            return False
        self._remove(turn)
        return True

    def _remove(self, turn: Turn) -> None:
        line = self._waiting[turn.network]
        line.remove(turn)
        if not line:
            del self._waiting[turn.network]


class NetworkSlots:
    """Slots for executions, given by the rules of `Admission`."""

    def __init__(self, count: int, slow_s: float = SLOW_S) -> None:
        self._slow_s = slow_s
        self._admission = Admission(count)

    @asynccontextmanager
    async def held(self, network: str) -> AsyncIterator[None]:
        """Run the body as soon as it has a slot."""
        turn = self._admission.arrive(network)
        self._serve()
        slow = None
        try:
            await turn.admitted.wait()
            slow = asyncio.get_running_loop().call_later(self._slow_s, self._slow_down, turn)
            yield
        finally:
            if slow is not None:
                slow.cancel()
            if not self._admission.give_up(turn):
                self._admission.shares.end(turn)
            self._serve()

    def _slow_down(self, turn: Turn) -> None:
        self._admission.shares.slow_down(turn)
        self._serve()

    def _serve(self) -> None:
        for turn in self._admission.admit():
            turn.admitted.set()
