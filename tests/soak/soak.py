# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The soak: rounds of operations and kills, after which the model is updated and compared with the machine."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from tests.soak.comparison import compare
from tests.soak.docker_host import Outcome
from tests.soak.figures import Figures
from tests.soak.following import CONVERGENCE_S, Following
from tests.soak.generator import MOST_AT_ONCE, Generator
from tests.soak.keeping import Keeping
from tests.soak.lists import TROUBLED
from tests.soak.machine import Machine
from tests.soak.model import World
from tests.soak.operations import Kill, Kind, Operation, Round

_CHECK_EVERY: Final = 10
"""How many rounds there are between two checkpoints, which compare the whole machine."""

_PAUSE_S: Final = 0.2
_MOST_THREADS: Final = 100
_LEAD_S: Final = 1.5
"""How long before the others the first operations of a round start; their plugins run by then."""

_CALL_LIMIT_S: Final = 15.0
"""How long an operation may take on networks whose plugins do not hang. It takes a second or two on a busy machine.
Behind eight plugins that hang for eight seconds each, four at a time, it would take sixteen more."""


class Soak:
    """Random rounds on a machine."""

    def __init__(self, machine: Machine, generator: Generator, say: Callable[[str], None]) -> None:
        self._machine = machine
        self._generator = generator
        self._say = say
        self._started = time.monotonic()
        self.figures = Figures()
        self._following = Following(machine, self.figures, self._log)
        self._keeping = Keeping(machine, self.figures, self._log)

    def run(self, operations: int) -> Figures:
        """Do at least `operations` operations, remove everything, and compare; stop at the first difference."""
        number = 0
        with ThreadPoolExecutor(_MOST_THREADS) as threads:
            while self.figures.operations.total() < operations and not self.figures.differences:
                number += 1
                self._do(number, self._generator.next(number, self._following.world), threads)
                if number % _CHECK_EVERY == 0 and not self.figures.differences:
                    self._check()
        for after in (self._check, self._remove_all, self._check):
            if not self.figures.differences:
                after()
        self.figures.differences += self._machine.complaints()
        self.figures.duration_s = time.monotonic() - self._started
        return self.figures

    def _do(self, number: int, round_: Round, threads: ThreadPoolExecutor) -> None:
        """Do one round, and update the model."""
        kill, world = round_.kill, self._following.world
        for operation in round_.operations:
            self._log(f"{number}: {operation}")
        running: dict[Operation, Future[Outcome]] = {}
        for group in (round_.operations[: round_.first], round_.operations[round_.first :]):
            if running:
                time.sleep(_LEAD_S)
            running |= {operation: threads.submit(self._machine.perform, operation, world) for operation in group}
        if kill is Kill.REBOOT:
            wait(running.values())
        if kill is not None:
            time.sleep(round_.delay_s)
            if self._machine.killing.carry_out(round_, lambda: all(done.done() for done in running.values())):
                self.figures.kills[kill] += 1
                self._log(f"{number}: killed: {kill}, {round_.delay_s:.2f} s after the start")
            else:
                kill = None
        outcomes = {operation: done.result() for operation, done in running.items()}
        for operation, outcome in outcomes.items():
            self._log(f"{number}: {operation}: {outcome} after {outcome.took_s:.1f} s")
        self._count(outcomes)
        if kill is None and len(round_.operations) - round_.first <= MOST_AT_ONCE:
            self._check_times(world, outcomes)
        self._following.follow(outcomes, kill)
        if not self.figures.differences:
            touched = [operation.writes for operation in outcomes]
            operations = "; ".join(map(str, outcomes))
            after = f"round {number} ({operations}{f'; killed: {kill}' if kill else ''})"
            self._keeping.check(self._following.world, self._following.look(), touched, after)

    def _count(self, outcomes: Mapping[Operation, Outcome]) -> None:
        for operation, outcome in outcomes.items():
            self.figures.operations[operation.kind] += 1
            word = "done" if outcome.is_done else "refused" if outcome.is_refused else "failed"
            self.figures.outcomes[word] += 1

    def _check_times(self, world: World, outcomes: Mapping[Operation, Outcome]) -> None:
        """Check that no operation has waited for plugins of networks with which it has nothing to do."""
        for operation, outcome in outcomes.items():
            if not world.lists_for(operation) & TROUBLED:
                self.figures.slowest_call_s = max(self.figures.slowest_call_s, outcome.took_s)
                if outcome.took_s > _CALL_LIMIT_S:
                    took = f"{operation}: took {outcome.took_s:.1f} s, on networks without slow plugins"
                    self.figures.differences += (took,)

    def _remove_all(self) -> None:
        """Remove all containers and networks."""
        for name in sorted(self._following.world.containers):
            self._do_now(Operation(kind=Kind.REMOVE, container=name))
        for name in sorted(self._following.world.networks):
            self._do_now(Operation(kind=Kind.REMOVE_NETWORK, network=name))

    def _do_now(self, operation: Operation) -> None:
        outcome = self._machine.docker.perform(operation)
        self._log(f"end: {operation}: {outcome}")
        self._count({operation: outcome})
        self._following.follow({operation: outcome}, None)

    def _check(self) -> None:
        """Wait until the whole machine agrees with the model; record the differences."""
        began = time.monotonic()
        while True:
            docker = self._following.look()
            found = compare(
                self._following.world,
                docker,
                self._machine.look(self._following.world, docker),
                self._machine.artifacts,
            )
            took = time.monotonic() - began
            if not found or took > CONVERGENCE_S:
                break
            time.sleep(_PAUSE_S)
        self.figures.checkpoints += 1
        self.figures.slowest_s = max(self.figures.slowest_s, took)
        self.figures.differences += found
        containers = Counter(
            "running" if found.running else "not" for found in self._following.world.containers.values()
        )
        self._log(
            f"checkpoint {self.figures.checkpoints}: {self.figures.operations.total()} operations, "
            f"{self.figures.kills.total()} kills; {containers['running']} containers running, {containers['not']} not, "
            f"{len(self._following.world.networks)} networks; {len(found)} differences after {took:.1f} s"
        )

    def _log(self, line: str) -> None:
        self._say(f"{time.monotonic() - self._started:7.1f} {line}")
