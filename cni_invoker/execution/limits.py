# SPDX-License-Identifier: Apache-2.0
"""Limits on plugins: time, output, and how many run at once.

Plugins that hang on one network must not stop those of others:

* A network runs at most `executions` at once.
* All networks together run at most `executions` that began less than `SLOW_S` ago. Half as many more may run, each as
  the only one of its network.
* The next one is a preferred one, then one of the network that runs the fewest, then the first to arrive.
"""

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from cni_invoker.documents.versions import Verb

_PORTS_S: Final = 600.0


def _executions() -> int:
    # Measured with bridge: throughput is best at two executions per CPU, and falls when many more compete.
    return 2 * len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a `Runtime`: times in seconds, and sizes in bytes.

    Attributes:
        add_s: For one plugin's ADD, CHECK or GC, from its start; `delete_s`: DEL; `version_s`: VERSION and STATUS.
        dhcp_s: A shorter limit for ADD with the IPAM plugin `dhcp`, which waits for minutes if no server answers.
        port_s: Extra time for ADD, DEL and CHECK per port that the plugin publishes (`portmap` 1.9.1 took 10 s for 300
            ports on two processors, more than a minute for 1000); ten minutes at most.
        wait_s: How long an operation waits for other operations on the same container or for GC on the same network,
            and an execution for a free slot.
        retry_pauses_s: Before each retry of a plugin that reports "try again later" (error code 11).
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
    port_s: float = 0.25
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
        """Return the limit for one execution that publishes so many ports, with an IPAM plugin of this type."""
        if verb in {Verb.STATUS, Verb.VERSION}:
            return self.version_s
        ports_s = min(ports * self.port_s, _PORTS_S)
        if verb is Verb.DEL:
            return self.delete_s + ports_s
        limit_s = self.add_s + ports_s
        if verb is Verb.ADD and ipam == "dhcp" and self.dhcp_s is not None:
            return min(limit_s, self.dhcp_s)
        return limit_s


SLOW_S: Final = 2.0
"""After this time an execution no longer counts against other networks; most take less than a tenth of it."""

K = TypeVar("K", bound=Hashable)


class NetworkSlots(Generic[K]):
    """Runs a limited number of bodies at once; the others wait, each under its own key.

    Args:
        limit: Number of slots, by the rules above.
        for_preferred: Number of additional slots, for preferred keys only.
        slow_s: After how long a body no longer counts against other networks.
    """

    def __init__(self, limit: int, *, for_preferred: int = 0, slow_s: float = SLOW_S) -> None:
        self._shares = _Shares(limit)
        self._shares_of_preferred = _Shares(for_preferred)
        self._slow_s = slow_s
        self._arrived = 0
        self._networks: dict[K, str] = {}  # of the waiting keys
        self._waiting: dict[str, OrderedDict[K, _Turn]] = {}  # in each network, preferred ones first

    def prefer(self, keys: Iterable[K]) -> None:
        """Move the waiting bodies of these keys to the front."""
        for key in self._networks.keys() & frozenset(keys):
            line = self._waiting[self._networks[key]]
            line[key].is_preferred = True
            line.move_to_end(key, last=False)
        self._give()

    @asynccontextmanager
    async def take(self, key: K, network: str, *, preferred: bool = False) -> AsyncIterator[None]:
        """Run the body as soon as a slot is free; a preferred key goes first."""
        self._arrived += 1
        turn = _Turn(network, self._arrived, self._shares)
        self._networks[key] = network
        self._waiting.setdefault(network, OrderedDict())[key] = turn
        self.prefer((key,) if preferred else ())
        slow = None
        try:
            await turn.given.wait()
            slow = asyncio.get_running_loop().call_later(self._slow_s, self._slow_down, turn)
            yield
        finally:
            if slow is not None:
                slow.cancel()
            if turn.given.is_set():
                turn.shares.end(turn)
                self._give()
            else:
                self._remove(key)

    def _give(self) -> None:
        """Grant free slots to those that go first."""
        while ready := [found for line in self._waiting.values() if (found := self._find_ready(line)) is not None]:
            key, turn = min(ready, key=lambda found: self._rank(found[1]))
            self._remove(key)
            turn.shares.begin(turn)
            turn.given.set()

    def _find_ready(self, line: "OrderedDict[K, _Turn]") -> "tuple[K, _Turn] | None":
        """Return the first one of a network if it may run now."""
        key, turn = next(iter(line.items()))
        is_ordinary = self._shares.admits(turn.network)
        turn.shares = self._shares if is_ordinary or not turn.is_preferred else self._shares_of_preferred
        return (key, turn) if is_ordinary or turn.shares.admits(turn.network) else None

    def _rank(self, turn: "_Turn") -> tuple[bool, int, int]:
        return not turn.is_preferred, self._shares.running[turn.network], turn.number

    def _remove(self, key: K) -> None:
        network = self._networks.pop(key)
        del self._waiting[network][key]
        if not self._waiting[network]:
            del self._waiting[network]

    def _slow_down(self, turn: "_Turn") -> None:
        turn.shares.slow_down(turn)
        self._give()


class _Turn:
    """A body of a network that waits or runs, with its number in the order of arrival."""

    def __init__(self, network: str, number: int, shares: "_Shares") -> None:
        self.network = network
        self.number = number
        self.shares = shares  # where it counts when it runs
        self.is_preferred = False
        self.is_quick = False  # it runs and counts against other networks
        self.given = asyncio.Event()


class _Shares:
    """Counts those that run, by the first two rules."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._reserved = (limit + 1) // 2
        self._quick = 0
        self.running: Counter[str] = Counter()

    def admits(self, network: str) -> bool:
        running = self.running[network]
        return running < self._limit and self._quick < self._limit + (0 if running else self._reserved)

    def begin(self, turn: _Turn) -> None:
        self.running[turn.network] += 1
        self._quick += 1
        turn.is_quick = True

    def slow_down(self, turn: _Turn) -> None:
        """Count one that runs for its own network only."""
        if turn.is_quick:
            turn.is_quick = False
            self._quick -= 1

    def end(self, turn: _Turn) -> None:
        self.slow_down(turn)
        self.running[turn.network] -= 1
        if not self.running[turn.network]:
            del self.running[turn.network]
