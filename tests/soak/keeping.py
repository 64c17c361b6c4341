# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Watches, round by round, that every running container keeps all that its plugins made.

A container that an operation has touched, or that dockerd has started again, may take a moment until it has what its
lists give (`Artifacts`); then what it has is kept. From that time on it must have all of it after every round, whatever
is done to others and whatever is killed but dockerd, and at once.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.docker_view import DockerContainer, DockerView
from tests.soak.figures import Figures
from tests.soak.holdings import Holdings
from tests.soak.losses import Survey, find_changes, find_gaps
from tests.soak.machine import Machine
from tests.soak.model import World

__all__ = ["Keeping"]

_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A container that had everything.

    Attributes:
        container: It at Docker, with its process and its endpoints: when they change all may.
        holdings: What it had.
        since: The round after which it had that first.
    """

    container: DockerContainer
    holdings: Holdings
    since: str


class Keeping:
    """Knows what running containers had, and finds what they have lost.

    Args:
        machine: Where they run.
        figures: Takes what is lost, and how long looking takes.
        say: Takes each line of the log.
        limit_s: How long a container may take until it has everything, and reaches everybody.
    """

    def __init__(self, machine: Machine, figures: Figures, say: Callable[[str], None], limit_s: float = 60.0) -> None:
        self._machine = machine
        self._figures = figures
        self._say = say
        self._limit_s = limit_s
        self._known: dict[str, _Known] = {}

    def check(self, world: World, docker: DockerView, touched: Collection[str], after: str) -> None:
        """Look at all running containers, wait for the new ones; lost things become differences.

        Args:
            world: The model, which Docker agrees with.
            docker: What Docker has.
            touched: The containers that something was done to.
            after: The round that has just ended, for a person.
        """
        running = {name: found for name, found in docker.containers.items() if found.runs and name in world.containers}
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
        """Give what containers have lost that had everything."""
        found = {}
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
        """Give what new containers lack, and whom any container does not reach."""
        found = {}
        for name, container in running.items():
            lacking, silent = find_gaps(world, name, container, survey, self._machine.artifacts)
            lines = silent if name in self._known else (*(f"lacks: {line}" for line in lacking), *silent)
            found[name] = tuple(f"container {name}: {line}" for line in lines)
        return {name: lines for name, lines in found.items() if lines}
