# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Updates the model. After a kill Docker shows how far an operation came, and the model which outcomes are possible.

Docker 20.10 itself loses data when it is killed, and no driver can change that. The inconsistent objects are removed as
an operator would remove them, and counted (`Figures.helped`):

* A container whose operation was interrupted may be inconsistent: `removing`, `dead`, running and shown on a network
  although its `connect` has failed, or not running in spite of its restart policy
  (`DockerView.is_half_of_something`).
* A container that dockerd was starting when it was killed may still run as a task of containerd that dockerd does not
  have: its process is killed. It is removed if its policy does not restart it, as dockerd has not noticed its end. If
  each later start fails with `task …: already exists`, the container is removed.
  If that fails, too, because the end of the task is never reported (`did not receive an exit event`), dockerd is killed
  and started once more.
* An endpoint that dockerd was making or removing stays in its list of a network, without a sandbox. The network cannot
  be removed (`has active endpoints`) until `docker network disconnect --force`.
* The device that `host-device` gives to a container, a virtual one, ends with its namespace: it is made again.
* A link of Docker's own `bridge` or `macvlan` that dockerd was making or removing stays in the host namespace, without
  an endpoint: it is deleted. If the `macvlan` of a container's previous run still exists when dockerd starts, the
  container does not: it would have the same MAC.
"""

import http.client
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from tests.soak.comparison import compare_docker
from tests.soak.docker_host import Outcome
from tests.soak.docker_view import DockerView
from tests.soak.figures import Figures
from tests.soak.lists import OF_DEVICE
from tests.soak.machine import Machine
from tests.soak.model import World
from tests.soak.operations import Kill, Kind, Operation
from tests.soak.shortage import is_short

CONVERGENCE_S: Final = 60.0
"""How long machine and model may differ: Docker applies restart policies, and the daemon reconciles."""

_HALF_S: Final = 5.0
"""How long a container may be inconsistent before it is removed."""

_STALE_S: Final = 10.0
"""How long Docker may list endpoints of containers that do not run, before they are removed."""

_UNCERTAIN: Final = (Kill.DOCKERD, Kill.BOTH)
"""The kills after which Docker may have lost what it has reported as done."""

_HUNG: Final = re.compile(r"timed out|too many plugins")
"""The errors if a plugin hangs."""

_STUCK: Final = re.compile(r"did not receive an exit event")
"""The error of a removal if the container's task is lost: neither dockerd nor containerd learns of its end."""

_SPOILED: Final = re.compile(
    r"\btask [0-9a-f]{64}: already exists"
    r"|failed to add interface veth[0-9a-f]{7} to sandbox: error setting interface \S+ MAC .*: address already in use"
)
"""The errors if a container does not start because of a task, or of a link of Docker's own `macvlan`, that is lost."""

_PAUSE_S: Final = 0.2


class Following:
    """Keeps the model up to date."""

    def __init__(self, machine: Machine, figures: Figures, say: Callable[[str], None]) -> None:
        self._machine = machine
        self._docker = machine.docker
        self._figures = figures
        self._say = say
        self.world = World()

    def follow(self, outcomes: Mapping[Operation, Outcome], kill: Kill | None) -> None:
        """Bring the model up to date after a round, and wait until Docker agrees with it."""
        short = self._find_short(outcomes)
        spoiled = {operation for operation, outcome in outcomes.items() if self._is_spoiled(outcome)}
        is_strict = kill is None or not kill.excuses
        if is_strict:
            excused = spoiled | short
            self.expect({operation: outcome for operation, outcome in outcomes.items() if operation not in excused})
        before = self.world
        certain = [
            operation
            for operation, outcome in outcomes.items()
            if kill not in _UNCERTAIN
            and (outcome.is_done or before.is_refused(operation) or (is_strict and before.hangs(operation)))
        ]
        for operation in certain:
            self.world = self.world.after(operation)
        broken_off = [operation for operation in outcomes if operation not in certain]
        touched = frozenset(operation.writes for operation in broken_off)
        if kill is not None and kill.ends_containers:
            self.world = self.world.after_restart_of_docker()
            if self._end_lost_containers():
                self._remove_not_restarted(touched)
        docker = self._wait(touched)
        patience_s = _HALF_S if kill in _UNCERTAIN else 0.0
        for operation in broken_off:
            docker = self._adopt(operation, before, docker, patience_s)
        if kill is not None and kill.ends_containers:
            self._help_networks()
            self._remove_stray_links()
            is_used = self.world.on_list(OF_DEVICE) & self.world.running
            if left := "" if is_used else self._machine.surroundings.ensure_device():
                self._figures.helped["device of the host"] += 1
                self._say(f"the device of the host was lost; left: {left}")
        if broken_off:
            self._wait(frozenset())
        for operation in spoiled:
            self._remove_spoiled(operation.writes)

    def _find_short(self, outcomes: Mapping[Operation, Outcome]) -> frozenset[Operation]:
        """Return the operations that were refused because no address was free; Docker shows their outcome."""
        wants = {operation: self.world.wants(operation) for operation in outcomes}
        rivals = Counter(name for of in wants.values() for name in of)
        short = frozenset(
            operation
            for operation, outcome in outcomes.items()
            if not outcome.is_done
            and outcome.status is not None
            and is_short(outcome.text, wants[operation], outcome.taken, rivals - Counter(wants[operation].keys()))
        )
        self._figures.outcomes["no address left"] += len(short)
        return short

    def expect(self, outcomes: Mapping[Operation, Outcome]) -> None:
        """Compare outcomes with the model after a round in which nothing was killed."""
        for operation, outcome in outcomes.items():
            if self.world.hangs(operation):
                if outcome.is_done or not _HUNG.search(outcome.text):
                    self._figures.differences += (f"{operation}: should name the plugin that hangs: {outcome}",)
                continue
            is_refused = self.world.is_refused(operation)
            if (outcome.is_refused if is_refused else outcome.is_done) is False:
                wanted = "refused" if is_refused else "done"
                self._figures.differences += (f"{operation}: should be {wanted}, and is {outcome}",)

    def look(self) -> DockerView:
        """Return what Docker has, as soon as it answers."""
        while True:
            try:
                return self._docker.look()
            except (OSError, http.client.HTTPException) as exc:
                self._say(f"Docker does not answer: {exc}")
                time.sleep(_PAUSE_S)

    def _wait(self, touched: frozenset[str]) -> DockerView:
        """Wait until Docker agrees with the model, except in what `touched` names."""
        deadline = time.monotonic() + CONVERGENCE_S
        is_helped = False
        while True:
            docker = self.look()
            found = compare_docker(self.world, docker, touched)
            if not found:
                return docker
            spoiled = [name for name in self.world.containers if self._is_spoiled_container(docker, name)]
            if spoiled:  # it restarts again and again
                self._remove_spoiled(spoiled[0])
                continue
            if time.monotonic() > deadline:
                if not is_helped and self._was_killed and self._end_lost_containers():  # or it restarts forever
                    is_helped, deadline = True, time.monotonic() + CONVERGENCE_S
                    continue
                self._figures.differences += found
                return docker
            time.sleep(_PAUSE_S)

    def _adopt(self, operation: Operation, before: World, docker: DockerView, patience_s: float) -> DockerView:
        """Put what Docker has into the model, if it is a possible outcome of the operation; return what Docker has.

        Args:
            operation: An operation that was interrupted, or has failed.
            before: The world before the round.
            docker: What Docker has.
            patience_s: How long Docker may continue by itself.
        """
        name, after = operation.writes, before.after(operation)
        known = before.containers.get(name) or after.containers.get(name)
        deadline = time.monotonic() + patience_s
        while known and docker.is_half_of_something(name, restarts=known.restarts) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            docker = self.look()
        impossible = before.why_impossible(operation, docker.shape(name))
        if impossible:
            self._figures.differences += (f"{operation}: {impossible}",)
        if known is None:
            list_name = before.networks.get(name) or after.networks.get(name)
            self.world = self.world.with_network(name, list_name if name in docker.networks else None)
        elif name not in docker.containers:
            self.world = self.world.with_container(name, None)
        elif docker.is_half_of_something(name, restarts=known.restarts) or (
            (name not in before.containers or operation.kind is Kind.UPDATE)
            and known.home
            and not docker.containers[name].endpoints
        ):
            self._help_container(name, docker.containers[name].state)
            self.world = self.world.with_container(name, None)
            docker = self.look()
        else:
            container = docker.containers[name]
            found = known.on(frozenset(container.endpoints), running=container.runs)
            self.world = self.world.with_container(name, found)
        return docker

    def _is_spoiled(self, outcome: Outcome) -> bool:
        return self._is_spoiled_by(outcome.text)

    def _is_spoiled_container(self, docker: DockerView, name: str) -> bool:
        return name in docker.containers and self._is_spoiled_by(docker.containers[name].error)

    def _is_spoiled_by(self, error: str) -> bool:
        """Return whether an error names what a killed dockerd has lost and a container still has."""
        return self._was_killed and _SPOILED.search(error) is not None

    @property
    def _was_killed(self) -> bool:
        """Whether dockerd was ever killed."""
        return any(self._figures.kills[kill] for kill in _UNCERTAIN)

    def _remove_spoiled(self, name: str) -> None:
        """Remove a container that what Docker has lost keeps from starting."""
        if name in self.world.containers:
            self._help_container(name, "that does not start because of what Docker has lost")
            self.world = self.world.with_container(name, None)
            self._wait(frozenset())

    def _help_container(self, name: str, state: str) -> None:
        """Remove an inconsistent container."""
        self._figures.helped[f"container {state}"] += 1
        deadline = time.monotonic() + CONVERGENCE_S
        is_stuck = False
        while True:
            outcome = self._docker.perform(Operation(kind=Kind.REMOVE, container=name))
            self._say(f"inconsistent, {state}: rm {name}: {outcome}")
            if outcome.is_done or outcome.status == HTTPStatus.NOT_FOUND:
                return
            if _STUCK.search(outcome.text) and not is_stuck:
                is_stuck = True
                self._restart_dockerd()
                deadline = time.monotonic() + CONVERGENCE_S  # the restart may have taken as long
            if time.monotonic() > deadline:
                self._figures.differences += (f"container {name} cannot be removed: {outcome}",)
                return
            time.sleep(_PAUSE_S)

    def _restart_dockerd(self) -> None:
        """Make Docker look at its containers again, without those that it has lost."""
        self._end_lost_containers()
        self._figures.helped["dockerd"] += 1
        self._machine.killing.restart_dockerd()
        self.world = self.world.after_restart_of_docker()

    def _remove_not_restarted(self, touched: frozenset[str]) -> None:
        """Remove containers, except `touched`, that Docker does not restart by their policy: it has lost their task."""
        docker = self.look()
        for name, found in self.world.containers.items():
            shown = docker.containers.get(name)
            if found.running and shown is not None and not shown.runs and name not in touched:
                self._help_container(name, shown.state)
                self.world = self.world.with_container(name, None)

    def _end_lost_containers(self) -> bool:
        """Kill running containers that Docker has lost, if it does not find them after a while; return if there are."""
        deadline = time.monotonic() + _HALF_S
        while lost := self._machine.killing.lost_containers(self.look()):
            if time.monotonic() > deadline:
                self._figures.helped["lost container"] += len(lost)
                self._say(f"lost: processes {sorted(lost)} of containers")
                self._machine.killing.kill_all(lost)
                return True
            time.sleep(_PAUSE_S)
        return False

    def _remove_stray_links(self) -> None:
        """Delete links of Docker's own drivers that stay in the host namespace."""
        deadline = time.monotonic() + _STALE_S
        stray = self._machine.killing.stray_links()
        while stray and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            stray &= self._machine.killing.stray_links()
        for name in sorted(stray):
            self._figures.helped["link of Docker's own"] += 1
            self._say(f"stray: link {name}")
            self._machine.killing.delete_link(name)

    def _help_networks(self) -> None:
        """Make Docker forget endpoints of containers that do not run, if it still lists them after a while."""
        deadline = time.monotonic() + _STALE_S
        while True:
            docker = self.look()
            stale = [
                (network, container)
                for network, found in docker.networks.items()
                for endpoint, container in found.endpoints.items()
                if endpoint not in docker.endpoints
            ]
            if not stale:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
        for network, container in stale:
            self._figures.helped["stale endpoint"] += 1
            self._say(f"stale: {container} on {network}: {self._docker.detach(network, container)}")
