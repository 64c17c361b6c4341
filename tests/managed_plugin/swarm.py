# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Two linked labs that are nodes of a swarm, and what their tasks see of each other."""

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from tests.lab import Engine, Lab, LabError, LabState, leftovers, wait_until

NODES: Final = ("10.99.0.1", "10.99.0.2")
"""The addresses of manager and worker."""
LIMIT_S: Final = 120.0
_OF_SWARM: Final = re.compile(r"ingress|docker_gwbridge|/run/docker/netns/1-|br_netfilter")
"""What swarm makes on each node for its own routing mesh, and keeps until the node leaves."""
_ANSWER: Final = re.compile(r"^Address(?: \d+)?:\s+(\d+\.\d+\.\d+\.\d+)", re.MULTILINE)
"""An address in the answer of busybox's `nslookup`."""


@contextmanager
def two_labs(engine: Engine) -> Iterator[tuple[Lab, Lab]]:
    """Start two labs with a link `node0` between them, and the addresses `NODES` on it."""
    with Lab(engine=engine) as manager, Lab(engine=engine) as worker:
        link(manager, worker, "node0")
        for node, address in zip((manager, worker), NODES, strict=True):
            node.run("ip", "addr", "add", f"{address}/24", "dev", "node0")
        yield manager, worker


@contextmanager
def three_labs(engine: Engine) -> Iterator[Sequence[Lab]]:
    """Start three labs whose bridges `nodes` are connected, and have the addresses 10.99.0.1 to 3."""
    with Lab(engine=engine) as one, Lab(engine=engine) as two, Lab(engine=engine) as three:
        labs = (one, two, three)
        connect(labs, "nodes")
        for number, lab in enumerate(labs, start=1):
            lab.run("ip", "addr", "add", f"10.99.0.{number}/24", "dev", "nodes")
        accepted = ("DOCKER-USER", "-s", "10.99.0.0/24", "-d", "10.99.0.0/24", "-j", "ACCEPT")
        one.run("iptables", "-I", *accepted)  # what its bridge forwards
        yield labs


def connect(labs: Sequence[Lab], bridge: str) -> None:
    """Make a bridge in each lab, and connect all of them to that of the first one."""
    for lab in labs:
        lab.run("ip", "link", "add", bridge, "up", "type", "bridge")
    for number, lab in enumerate(labs[1:], start=1):
        wire = f"{bridge}{number}"
        link(labs[0], lab, wire)
        for end in (labs[0], lab):
            end.run("ip", "link", "set", wire, "master", bridge)


def link(one: Lab, other: Lab, name: str) -> None:
    """Connect two labs by a link that has the same name in both, and is up."""
    netns = f"/proc/{one.namespaces.init_pid}/ns/net"
    peer = ("peer", "name", name, "netns", str(other.namespaces.init_pid))
    subprocess.run(("nsenter", f"--net={netns}", "ip", "link", "add", name, "type", "veth", *peer), check=True)
    for lab in (one, other):
        lab.run("ip", "link", "set", name, "up")


@contextmanager
def swarm(manager: Lab, *others: Lab, role: str = "worker") -> Iterator[None]:
    """Make a swarm of labs, in which the others are workers or managers; they leave it at the end."""
    manager.docker("swarm", "init", "--advertise-addr", NODES[0])
    token = manager.docker("swarm", "join-token", "--quiet", role)
    for other in others:
        other.docker("swarm", "join", "--token", token, f"{NODES[0]}:2377")
    yield
    for other in (*others, manager):
        other.docker("swarm", "leave", "--force")


def wait_leader(nodes: Sequence[Lab]) -> Lab:
    """Wait until one of some managers is the swarm's leader, and return it."""
    wait_until(lambda: any(map(_is_leader, nodes)), "a leader", LIMIT_S, poll_s=1.0)
    return next(filter(_is_leader, nodes))


def _is_leader(node: Lab) -> bool:
    shown = node.run("docker", "node", "inspect", "--format", "{{.ManagerStatus.Leader}}", "self", check=False)
    return shown.stdout.strip() == "true"


def tasks(node: Lab, service: str) -> list[str]:
    """Return the containers of a service on a node."""
    return node.docker("ps", "--quiet", "--filter", f"label=com.docker.swarm.service.name={service}").split()


def resolve(node: Lab, container: str, name: str) -> set[str]:
    """Return the addresses that Docker's name server tells a container."""
    answer = node.run("docker", "exec", container, "nslookup", name, "127.0.0.11", check=False).stdout
    return {*_ANSWER.findall(answer)} - {"127.0.0.11"}


def wait_found(nodes: Sequence[Lab], service: str) -> None:
    """Wait until tasks on each node find exactly the living tasks of all nodes, by the service's and their own names.

    Addresses of tasks that have ended are found no more.
    """
    for number, node in enumerate(nodes):
        wait_until(partial(_finds_all, node, nodes, service), f"the names on node {number}", LIMIT_S, poll_s=1.0)


def _finds_all(node: Lab, nodes: Sequence[Lab], service: str) -> bool:
    try:
        running = {task: one for one in nodes for task in tasks(one, service)}
        addresses = {
            task: {str(address.ip) for address in one.container(task).link("eth0").addresses}
            for task, one in running.items()
        }
        names = {task: one.docker("inspect", "--format", "{{.Name}}", task)[1:] for task, one in running.items()}
        asking = [task for task, one in running.items() if one is node]
        return bool(asking) and all(
            resolve(node, task, service) == resolve(node, task, f"tasks.{service}") == set().union(*addresses.values())
            and all(resolve(node, task, names[other]) == addresses[other] for other in running)
            for task in asking
        )
    except LabError:  # dockerd is starting, or a task has just ended
        return False


def fetch(node: Lab, address: str, port: int) -> str | None:
    """Return what an HTTP server answers a node, None without an answer."""
    done = node.run("curl", "--silent", "--max-time", "3", f"http://{address}:{port}/", check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def remove(manager: Lab, nodes: Sequence[Lab], network: str, before: Sequence[LabState]) -> None:
    """Remove the service `web` and its network; nothing is left on the nodes beyond their earlier states."""
    manager.docker("service", "rm", "web")
    wait_until(lambda: not any(tasks(node, "web") for node in nodes), "the end of the tasks", LIMIT_S, poll_s=1.0)
    wait_until(partial(is_removed, manager, network), "the removal of the network", LIMIT_S, poll_s=1.0)
    for node, state in zip(nodes, before, strict=True):
        for container in node.docker("ps", "--all", "--quiet").split():
            node.remove_container(container)  # swarm may be removing it; what stays is found below
        deadline = time.monotonic() + LIMIT_S
        while (remains := _left(node, state)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not remains, remains


def is_removed(manager: Lab, network: str) -> bool:
    """Remove a network of the swarm; return whether it is gone."""
    done = manager.run("docker", "network", "rm", network, check=False)
    return done.returncode == 0 or "not found" in done.stderr


def _left(node: Lab, before: LabState) -> list[str]:
    """Return what is left on a node beyond an earlier state, without what swarm itself keeps."""
    return [line for line in leftovers(before, node.state()).splitlines() if not _OF_SWARM.search(line)]
