# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Checks after each round that every running container still has everything that its plugins made.

A container that an operation has changed, or that dockerd has restarted, may take a moment until it has what its lists
give (`Artifacts`). Then what it has is recorded. From then on it must have all of it right after every round, whatever
is done to other containers and whatever is killed, except dockerd.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.docker_view import DockerContainer, DockerView
from tests.soak.figures import Figures
from tests.soak.holdings import Holdings
from tests.soak.losses import Survey, find_changes, find_gaps, find_shared
from tests.soak.machine import Machine
from tests.soak.model import World

_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A container that was complete.

    Attributes:
        container: What Docker shows of it: if its process or endpoints change, everything may.
        holdings: What it had.
        since: The round after which it was complete first.
    """

    container: DockerContainer
    holdings: Holdings
    since: str


class Keeping:
    """Records what running containers have, and finds what they lose.

    Args:
        machine: Where they run.
        figures: Takes losses, and the duration of the checks.
        say: Takes each line of the log.
        limit_s: How long a container may take until it is complete and reaches all of its peers.
    """

    def __init__(self, machine: Machine, figures: Figures, say: Callable[[str], None], limit_s: float = 60.0) -> None:
        self._machine = machine
        self._figures = figures
        self._say = say
        self._limit_s = limit_s
        self._known: dict[str, _Known] = {}

    def check(self, world: World, docker: DockerView, touched: Collection[str], after: str) -> None:
        """Check all running containers, and wait until the new ones are complete; losses become differences.

        Args:
            world: The model, with which Docker agrees.
            docker: What Docker has.
            touched: The containers that operations have changed.
            after: A description of the round that has just ended.
        """
        running = {
            name: found for name, found in docker.containers.items() if found.runs and world.has_own_network(name)
        }
        self._known = {
            name: known
            for name, known in self._known.items()
            if name not in touched and running.get(name) == known.container
        }
        began = time.monotonic()
        while True:
            survey = self._look(world, docker)
            losses = self._find_losses(world, running, survey)
            open_ = self._find_open(world, running, survey)
            if open_ and not losses:
                lines = [line for of in open_.values() for line in of]
                self._say(f"not complete yet: {lines[0]}{f', and {len(lines) - 1} more' if lines[1:] else ''}")
            if losses or not open_ or time.monotonic() - began > self._limit_s:
                break
            time.sleep(_PAUSE_S)
        lines = [line for found in (losses, open_) for of in found.values() for line in of]
        if lines:
            again = self._look(world, docker)
            still = {line for of in self._find_losses(world, running, again).values() for line in of}
            still |= {line for of in self._find_open(world, running, again).values() for line in of}
            self._figures.differences += tuple(
                f"after {after}: {line}{'' if line in still else ' (for a moment)'}" for line in lines
            )
            return
        for name, found in running.items():
            if name not in self._known:
                self._known[name] = _Known(container=found, holdings=survey.holdings[name], since=after)

    def _look(self, world: World, docker: DockerView) -> Survey:
        began = time.monotonic()
        survey = self._machine.survey(world, docker)
        self._figures.looks += 1
        self._figures.looking_s += time.monotonic() - began
        self._figures.looked_into += len(survey.holdings)
        return survey

    def _find_losses(
        self, world: World, running: Mapping[str, DockerContainer], survey: Survey
    ) -> Mapping[str, tuple[str, ...]]:
        """Return what complete containers have lost, and what containers must not share."""
        found = {"": find_shared(survey.holdings)}
        for name, known in self._known.items():
            lacking, _ = find_gaps(world, name, running[name], survey, self._machine.artifacts)
            holdings = survey.holdings.get(name)
            changes = find_changes(known.holdings, holdings) if holdings else ()
            lines = (*(f"lost: {line}" for line in lacking), *changes)
            found[name] = tuple(f"container {name}, complete since {known.since}, {line}" for line in lines)
        return {name: lines for name, lines in found.items() if lines}

    def _find_open(
        self, world: World, running: Mapping[str, DockerContainer], survey: Survey
    ) -> Mapping[str, tuple[str, ...]]:
        """Return what new containers lack, and which peers any container does not reach."""
        found = {}
        for name, container in running.items():
            lacking, silent = find_gaps(world, name, container, survey, self._machine.artifacts)
            lines = silent if name in self._known else (*(f"lacks: {line}" for line in lacking), *silent)
            found[name] = tuple(f"container {name}: {line}" for line in lines)
        return {name: lines for name, lines in found.items() if lines}
