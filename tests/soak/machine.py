# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The machine of a soak: a lab with Docker and the daemon. Does operations and kills, and reads what exists."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import AddressPhase, AddressRecord
from cnm_bridge.core.settings import AttachOption
from tests.lab import Lab, LabState
from tests.lab.docker_api import DOCKER_SOCKET
from tests.lab.editions import MACHINE_PLUGINS
from tests.lab.leftovers import temporary_rules
from tests.plugins.unreliable import render_unreliable
from tests.soak.artifacts import Artifacts, Attachment, generalise, kind_of_link, parse_addresses
from tests.soak.comparison import MachineView, Reservation, Sandbox
from tests.soak.docker_host import DockerHost, Outcome
from tests.soak.docker_view import DockerView
from tests.soak.holdings import Holdings, Link
from tests.soak.killing import START_LIMIT_S, STATE, Killing
from tests.soak.lists import (
    CANDIDATES,
    CHOSEN,
    HUNG,
    LISTS,
    NAMES,
    OF_DEVICE,
    OF_DOCKER,
    PUBLISHING,
    WRAPPED,
    families,
    section,
)
from tests.soak.losses import Survey
from tests.soak.model import World
from tests.soak.operations import Kind, Operation
from tests.soak.records import Records, read_records
from tests.soak.shortage import Taken
from tests.soak.surroundings import Surroundings
from tests.soak.surveyor import Surveyor

ALL_MOVED: Final = (AttachOption.AUTO, AttachOption.MOVE)
"""The options with which Docker moves the link of each list here."""

DAEMON_OPTIONS: Final = ("--reconcile-interval", "1", "--plugin-timeout", "8")
"""Short, so that a hanging plugin does not delay a checkpoint; long enough for two busy CPUs."""

_NAMESPACES: Final = ("/run/cni-bridge/netns/", "/run/cni-bridge/sandboxes/")
"""Staging namespaces and pins: an endpoint has one of them."""
_OF_IPAM_PLUGINS: Final = "/run/cni-bridge/ipam/netns"
"""The namespace that IPAM plugins receive; it exists while there are addresses."""
_TUNING: Final = "/run/cni/tuning/"
"""Where `tuning` notes what its DEL restores. It writes these files in place: killed right after it created one, it
leaves an empty file, which its DEL ignores with status 0 (17 of 60 plugins 1.1.1 that were killed as soon as the file
existed)."""

_STABLE_S: Final = 0.5
"""How long nothing must change until a container on a new list counts as complete."""

_LEARNING: Final = "learning"
_LEARNING_NETWORK: Final = "learning-network"
_LEARNING_PORT: Final = 19_999
_CLEAN_LIMIT_S: Final = 30.0


class Machine:
    """Docker, the daemon and the lists on a lab.

    Args:
        lab: A lab with dockerd and without the daemon, for the soak only.
        lists: Its lists; the artifacts of each are learnt, which takes some two seconds per list and mode.
        attach: How the daemon attaches containers. Those with several networks are moved in any case.
    """

    def __init__(
        self,
        lab: Lab,
        lists: Iterable[str] = NAMES,
        attach: AttachOption = AttachOption.AUTO,
    ) -> None:
        self._lab = lab
        options = (*DAEMON_OPTIONS, "--attach", attach.value)
        self.surroundings = Surroundings(lab)
        self.killing = Killing(lab, self.surroundings, options)
        self.docker = DockerHost(lab.path(DOCKER_SOCKET), self.killing.kill)
        self._surveyor = Surveyor(lab)
        self._before = self._prepare()
        self.artifacts: Mapping[str, Artifacts] = {name: self._learn(name) for name in lists if name != HUNG}
        if attach not in ALL_MOVED:
            moved = {name: artifacts.link for name, artifacts in self.artifacts.items()}
            lab.stop_daemon()
            lab.start_daemon(*options, timeout_s=START_LIMIT_S)
            self.artifacts = {name: replace(self._learn(name), moved=link) for name, link in moved.items()}

    def survey(self, world: World, docker: DockerView) -> Survey:
        """Return what all running containers have of their plugins."""
        return self._surveyor.survey(world, docker)

    def perform(self, operation: Operation, world: World) -> Outcome:
        """Do an operation; if it fails and needs an address of a small pool, return which addresses were in use."""
        if not world.wants(operation):
            return self.docker.perform(operation)
        before = self._taken()
        outcome = self.docker.perform(operation)
        return outcome if outcome.is_done else replace(outcome, taken=before | self._taken() | self._pending())

    def look(self, world: World, docker: DockerView) -> MachineView:
        """Return what the machine has now."""
        survey = self.survey(world, docker)
        state = self._lab.state()
        records = self._records()
        staging = {path for path in (*state.namespaces, *state.files) if path.startswith(_NAMESPACES)}
        expected = {*staging, *((_OF_IPAM_PLUGINS,) if records.addresses else ())}
        return MachineView(
            sandboxes={
                name: Sandbox(links={link: tuple(of.addresses) for link, of in found.links.items()})
                for name, found in survey.holdings.items()
            },
            reservations=tuple(self._surveyor.reservations()),
            rules=Counter(temporary_rules(self._before, state)),
            links=Counter(self._links(state)),
            staging=frozenset(path.rpartition("/")[2] for path in staging),
            files=tuple(path for path in state.files if path not in staging and not self._was_never_written(path)),
            leftovers=(
                *(path for path in state.namespaces if path not in expected),
                *state.plugins,
                *(() if world.on_list(OF_DEVICE) & world.running else self.surroundings.device_faults()),
            ),
            network_records=records.networks,
            endpoint_records={record.id: record.phase.value for record in records.endpoints},
            addresses=tuple(map(_requested, records.addresses)),
        )

    def complaints(self) -> tuple[str, ...]:
        """Return the lines that the daemon must never log, whatever was killed."""
        words = ("Traceback", "reconcile.bug", "state.damaged")
        daemons = [process for process in self._lab.processes if process.name.startswith("daemon")]
        return tuple(
            f"{process.name} logged: {line.strip()}"
            for process in daemons
            for line in process.log().splitlines()
            if any(word in line for word in words)
        )

    # Preparing

    def _prepare(self) -> LabState:
        self.surroundings.start()
        for name, plugins in LISTS.items():
            document: JsonObject = {"cniVersion": "1.0.0", "name": name, "plugins": [*plugins]}
            self._lab.write(f"/etc/cni/net.d/{name}.conflist", document)
        for name in OF_DOCKER:
            self._lab.write(f"/etc/cni/net.d/{name}.ipam", section(name))
        unreliable = render_unreliable(MACHINE_PLUGINS, Path("/run/unreliable"))
        for plugin in WRAPPED:
            self._lab.write(f"/opt/cni/bin/{plugin}", unreliable, mode=0o755)
        self._lab.start_daemon(*DAEMON_OPTIONS, "--attach", "move", timeout_s=START_LIMIT_S)
        return self._lab.state()

    def _learn(self, name: str) -> Artifacts:
        """Run one container on a list, and one that publishes a port, and return their artifacts."""
        artifacts = self._learn_one(name, None)
        return (
            replace(artifacts, published=self._learn_one(name, _LEARNING_PORT).rules)
            if name in PUBLISHING
            else artifacts
        )

    def _learn_one(self, name: str, port: int | None) -> Artifacts:
        run = Operation(
            kind=Kind.RUN,
            container=_LEARNING,
            network=_LEARNING_NETWORK,
            port=port,
            address=CANDIDATES[name][0] if name in CHOSEN else None,
        )
        create = Operation(kind=Kind.CREATE_NETWORK, network=_LEARNING_NETWORK, list=name)
        self._do(create)
        self._do(run)
        world = World().after(create).after(run)
        docker = self.docker.look()
        link = self._wait_stable(world, docker)
        found = self.look(world, docker)
        attachment = Attachment(
            endpoint=docker.containers[_LEARNING].endpoints[_LEARNING_NETWORK],
            list=name,
            addresses=parse_addresses(reservation.address for reservation in found.reservations),
            port=port,
        )
        artifacts = generalise(attachment, found.rules.elements(), tuple(found.links.elements()), found.files)
        self._do(Operation(kind=Kind.REMOVE, container=_LEARNING))
        self._do(Operation(kind=Kind.REMOVE_NETWORK, network=_LEARNING_NETWORK))
        left = self._lab.wait_clean(self._before, timeout_s=_CLEAN_LIMIT_S)
        if left or artifacts.families != families(name):
            raise AssertionError(f"list {name}, undisturbed: {artifacts}, and left behind: {left}")
        return replace(artifacts, link=link.general)

    def _wait_stable(self, world: World, docker: DockerView) -> Link:
        """Return everything about the only link of a new container, as soon as it no longer changes."""
        found: Holdings | None = None
        while True:
            before, found = found, self.survey(world, docker).holdings[_LEARNING]
            if found == before and not found.silent:
                (link,) = found.links.values()
                return link
            time.sleep(_STABLE_S)

    def _do(self, operation: Operation) -> None:
        outcome = self.docker.perform(operation)
        if not outcome.is_done:
            raise AssertionError(f"{operation}: {outcome}")

    # Reading

    def _taken(self) -> frozenset[Taken]:
        return frozenset((found.list, found.address) for found in self._surveyor.reservations())

    def _pending(self) -> frozenset[Taken]:
        """Return the addresses of endpoints whose teardown is pending, whether they are still reserved or not."""
        return self._records().pending_addresses()

    def _was_never_written(self, path: str) -> bool:
        """Return whether a file is an empty one of `tuning`, which was killed before it wrote it."""
        try:
            return path.startswith(_TUNING) and not self._lab.path(path).stat().st_size
        except FileNotFoundError:
            return False

    def _links(self, state: LabState) -> Iterator[str]:
        kinds = (kind_of_link(line) for line in (Counter(state.links) - Counter(self._before.links)).elements())
        return (kind for kind in kinds if kind is not None)

    def _records(self) -> Records:
        return read_records(self._lab.path(STATE))


def _requested(record: AddressRecord) -> Reservation:
    """Return what must be reserved for a record; one that is not complete is like no reservation."""
    is_complete = record.phase is AddressPhase.RESERVED and record.address is not None
    address = str(record.address.ip) if is_complete and record.address else f"{record.address}, {record.phase}"
    return Reservation(list=record.section, address=address, endpoint=record.id)
