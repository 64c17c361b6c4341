# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The machine of a soak: a lab with Docker and the daemon. Does operations, kills, and looks at what is there."""

import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from spec import JsonObject, find_str, get_objects, get_str, parse_json
from state import StateError, Store
from tests.lab import Lab, LabState
from tests.lab.leftovers import temporary_rules
from tests.lab.programs import CNI_BIN_DIRS
from tests.lab.state import DOCKER_SOCKET
from tests.soak.comparison import MachineView, Reservation, Sandbox
from tests.soak.docker_host import SERVER, DockerHost
from tests.soak.docker_view import DockerView
from tests.soak.lists import LISTS, PUBLISHING, SETUP, families, gateways
from tests.soak.model import World
from tests.soak.operations import Kill, Kind, Operation, Round
from tests.soak.traces import Attachment, Traces, generalise, kind_of_link, parse_addresses

__all__ = ["Machine"]

_RECONCILE: Final = ("--reconcile-interval", "1")
_STAGING: Final = "/run/cni-bridge/netns/"
_STATE: Final = "/var/lib/cni-bridge"
_STARTING: Final = (b"runc", b"init")
"""What a container's first process is until it is started, which those that Docker has lost never are."""
_ATTEMPTS: Final = 20
_START_LIMIT_S: Final = 60.0
_LEARNING: Final = "learning"
_LEARNING_PORT: Final = 19_999
_INSIDE: Final = 'ip -json addr; for i; do busybox ping -c 1 -W 2 "$i" >/dev/null 2>&1 || echo "$i"; done'

_ASK: Final = r"printf 'GET /name HTTP/1.0\r\n\r\n' | busybox nc -w 2 127.0.0.1 $1"


class Machine:
    """Docker, the daemon and the lists on a lab.

    Args:
        lab: A lab with dockerd and without the daemon; it is the soak's alone.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.docker = DockerHost(lab.path(DOCKER_SOCKET), self._kill_process)
        self._before = self._prepare()
        self.traces: Mapping[str, Traces] = {name: self._learn(name) for name in LISTS}

    def kill(self, round_: Round, is_over: Callable[[], bool]) -> bool:
        """Kill what the round says and start it again; False where no plugin was seen at work until `is_over()`."""
        match round_.kill:
            case Kill.DAEMON:
                self._restart_daemon()
            case Kill.DOCKERD:
                self._restart_dockerd()
            case Kill.BOTH:
                self._lab.stop_dockerd(signal.SIGKILL)
                self._restart_daemon()
                self._lab.start_dockerd(timeout_s=_START_LIMIT_S)
            case Kill.PLUGIN:
                return self._kill_plugin(round_.plugin, is_over)
        return True

    def lost_containers(self, docker: DockerView) -> frozenset[int]:
        """Give the first processes of containers that run and that Docker does not have."""
        known = {found.process for found in docker.containers.values()}
        return frozenset(process for process in self._containers() if process not in known)

    def end(self, processes: Iterable[int]) -> None:
        """Kill processes."""
        for process in processes:
            self._kill_process(process)

    def look(self, world: World, docker: DockerView) -> MachineView:
        """Give what is there now.

        Args:
            world: Tells which gateways a container should reach.
            docker: Tells which containers run.
        """
        sandboxes = {
            name: sandbox
            for name, found in docker.containers.items()
            if found.runs and (sandbox := self._look_inside(world, name)) is not None
        }
        state = self._lab.state()
        paths = {*state.namespaces, *state.files}
        networks, endpoints = self._records()
        return MachineView(
            sandboxes=sandboxes,
            reservations=tuple(self._reservations(state)),
            rules=Counter(temporary_rules(self._before, state)),
            links=Counter(self._links(state)),
            staging=frozenset(path.removeprefix(_STAGING) for path in paths if path.startswith(_STAGING)),
            leftovers=(*(path for path in paths if not path.startswith(_STAGING)), *state.plugins),
            network_records=networks,
            endpoint_records=endpoints,
        )

    def complaints(self) -> tuple[str, ...]:
        """Give what no daemon may say, whatever was killed."""
        words = ("Traceback", "reconcile.bug", "state.damaged", "orphan.found")
        daemons = [process for process in self._lab.processes if process.name.startswith("daemon")]
        return tuple(
            f"{process.name} said: {line.strip()}"
            for process in daemons
            for line in process.log().splitlines()
            if any(word in line for word in words)
        )

    def save_logs(self, directory: Path) -> None:
        """Write the logs of all that ran on the machine."""
        directory.mkdir(parents=True, exist_ok=True)
        for process in self._lab.processes:
            (directory / f"{process.name}.log").write_text(process.log(), encoding="utf-8")

    # Preparing

    def _prepare(self) -> LabState:
        self._lab.run("sh", "-c", SETUP)
        for name, plugins in LISTS.items():
            document: JsonObject = {"cniVersion": "1.0.0", "name": name, "plugins": [*plugins]}
            self._lab.write(f"/etc/cni/net.d/{name}.conflist", document)
        self._lab.start_daemon(*_RECONCILE, timeout_s=_START_LIMIT_S)
        return self._lab.state()

    def _learn(self, name: str) -> Traces:
        """Run one container on a list, and one that publishes a port, and look at what they make."""
        traces = self._learn_one(name, None)
        return replace(traces, published=self._learn_one(name, _LEARNING_PORT).rules) if name in PUBLISHING else traces

    def _learn_one(self, name: str, port: int | None) -> Traces:
        world = World(networks={_LEARNING: name})
        self._do(Operation(kind=Kind.CREATE_NETWORK, network=_LEARNING, list=name))
        self._do(Operation(kind=Kind.RUN, container=_LEARNING, network=_LEARNING, port=port))
        docker = self.docker.look()
        found = self.look(world, docker)
        attachment = Attachment(
            endpoint=docker.containers[_LEARNING].endpoints[_LEARNING],
            list=name,
            addresses=parse_addresses(reservation.address for reservation in found.reservations),
            port=port,
        )
        traces = generalise(attachment, found.rules.elements(), tuple(found.links.elements()))
        self._do(Operation(kind=Kind.REMOVE, container=_LEARNING))
        self._do(Operation(kind=Kind.REMOVE_NETWORK, network=_LEARNING))
        left = self._lab.wait_clean(self._before)
        if left or traces.families != families(name):
            raise AssertionError(f"list {name}, undisturbed: {traces}, and left behind: {left}")
        return traces

    def _do(self, operation: Operation) -> None:
        outcome = self.docker.perform(operation)
        if not outcome.is_done:
            raise AssertionError(f"{operation}: {outcome}")

    # Killing

    def _restart_daemon(self) -> None:
        self._lab.stop_daemon(signal.SIGKILL)
        self._lab.start_daemon(*_RECONCILE, timeout_s=_START_LIMIT_S)

    def _restart_dockerd(self) -> None:
        self._lab.stop_dockerd(signal.SIGKILL)
        self._lab.start_dockerd(timeout_s=_START_LIMIT_S)

    def _kill_process(self, process: int) -> None:
        self._lab.run("busybox", "kill", "-KILL", str(process), check=False)

    def _kill_plugin(self, number: int, is_over: Callable[[], bool]) -> bool:
        """Kill the plugin that is seen at work as the one of this number."""
        seen: list[int] = []
        while not is_over():
            for process in self._plugins():
                if process not in seen:
                    seen.append(process)
                    if len(seen) > number:
                        self._kill_process(process)
                        return True
            time.sleep(0.001)
        return False

    def _plugins(self) -> Iterator[int]:
        for path in self._lab.path("/proc").glob("[0-9]*/exe"):
            try:
                program = str(path.readlink())
                is_plugin = program.startswith(CNI_BIN_DIRS) and not self._is_child(path.parent, program)
            except OSError:  # it has just ended
                continue
            if is_plugin:
                yield int(path.parent.name)

    def _containers(self) -> Iterator[int]:
        for path in self._lab.path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:  # it has just ended
                continue
            if words[: len(SERVER)] == [*SERVER] or words[: len(_STARTING)] == [*_STARTING]:
                yield int(path.parent.name)

    def _is_child(self, process: Path, program: str) -> bool:
        """Tell whether a process is one that a plugin has just forked, to be iptables for one.

        When such a one is killed, `firewall` takes that for success, and its rule stays (`cleanupRules` ignores what
        goes wrong). Nobody is told, and nobody but the plugin knows the rule.
        """
        leader = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[3]  # proc(5): the session
        return leader != process.name and str((process.parent / leader / "exe").readlink()) == program

    # Looking

    def _look_inside(self, world: World, container: str) -> Sandbox | None:
        key = self.docker.sandbox(container)
        networks = world.containers[container].networks if container in world.containers else world.networks
        wanted = [address for network in sorted(networks) for address in gateways(world.networks[network])]
        if key is None:
            return None
        done = self._lab.run("nsenter", f"--net={key}", "sh", "-c", _INSIDE, "inside", *wanted, check=False)
        addresses, _, unreachable = done.stdout.partition("\n")
        if done.returncode != 0 or not addresses:  # it has just ended
            return None
        port = world.containers[container].port if container in world.containers else None
        return Sandbox(
            links=dict(_parse_links(addresses)),
            unreachable=tuple(unreachable.split()),
            answer=None if port is None else self._ask(port),
        )

    def _ask(self, port: int) -> str:
        """Give the name of the container that answers at a port of the host, "" if none does."""
        answer = self._lab.run("sh", "-c", _ASK, "ask", str(port), check=False).stdout
        return answer.splitlines()[-1] if answer else ""

    def _reservations(self, state: LabState) -> Iterator[Reservation]:
        for path in state.reservations:
            *_, name, address = path.split("/")
            try:
                endpoint = self._lab.path(path).read_text(encoding="utf-8").split()[0]
            except (OSError, IndexError):
                endpoint = ""
            yield Reservation(list=name, address=address, endpoint=endpoint)

    def _links(self, state: LabState) -> Iterator[str]:
        kinds = (kind_of_link(line) for line in (Counter(state.links) - Counter(self._before.links)).elements())
        return (kind for kind in kinds if kind is not None)

    def _records(self) -> tuple[frozenset[str], Mapping[str, str]]:
        """Read the daemon's records from a copy, for it has them locked."""
        for _ in range(_ATTEMPTS):
            with tempfile.TemporaryDirectory() as directory:
                copy = Path(directory) / "state"
                try:
                    shutil.copytree(self._lab.path(_STATE), copy)
                    store = Store.open(copy)
                except (StateError, OSError, shutil.Error):  # it was written to meanwhile
                    continue
                try:
                    if not store.findings:
                        networks = frozenset(record.id for record in store.networks())
                        return networks, {record.id: record.phase.value for record in store.endpoints()}
                finally:
                    store.close()
        raise AssertionError(f"the copy of {_STATE} cannot be read, {_ATTEMPTS} times")


def _parse_links(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for link in get_objects({"links": parse_json(text.encode())}, "links"):
        if link.get("link_type") != "loopback":
            found = (item for item in get_objects(link, "addr_info") if find_str(item, "scope") == "global")
            yield get_str(link, "ifname"), tuple(get_str(item, "local") for item in found)
