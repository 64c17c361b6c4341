# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A swarm of two nodes: each node's configuration attaches its tasks, and all of them are found by name."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pytest

from tests.lab import CommandFailed, Engine, Lab, LabError, LabState, leftovers, wait_until
from tests.managed_plugin.managed import DRIVER, PLUGIN, daemon_pids, enable, install, list_on
from tests.system.scene import reaches

pytestmark = pytest.mark.timeout(600)  # Docker packs and unpacks the plugin, and swarm takes its time

NODES: Final = ("10.99.0.1", "10.99.0.2")
_LIMIT_S: Final = 120.0
_OF_SWARM: Final = re.compile(r"ingress|docker_gwbridge|/run/docker/netns/1-")
"""What swarm makes on each node for its own routing mesh, and keeps until the node leaves."""
_ANSWER: Final = re.compile(r"^Address(?: \d+)?:\s+(\d+\.\d+\.\d+\.\d+)", re.MULTILINE)
"""An address in the answer of busybox's `nslookup`."""


@pytest.fixture(name="nodes")
def make_nodes(engine: Engine) -> Iterator[Sequence[Lab]]:
    """A manager and a worker, linked, with a managed plugin each, and the configuration `lan` with another subnet."""
    with Lab(engine=engine) as manager, Lab(engine=engine) as worker:
        nodes = manager, worker
        netns = [f"/proc/{node.namespaces.init_pid}/ns/net" for node in nodes]
        peer = ("peer", "name", "node0", "netns", str(worker.namespaces.init_pid))
        subprocess.run(
            ("nsenter", f"--net={netns[0]}", "ip", "link", "add", "node0", "type", "veth", *peer), check=True
        )
        for number, (node, address) in enumerate(zip(nodes, NODES, strict=True)):
            node.run("ip", "addr", "add", f"{address}/24", "dev", "node0")
            node.run("ip", "link", "set", "node0", "up")
            node.write("/etc/cni/net.d/10-lan.conflist", list_on(_subnet(number)))
            install(node)
        manager.docker("swarm", "init", "--advertise-addr", NODES[0])
        token = manager.docker("swarm", "join-token", "--quiet", "worker")
        worker.docker("swarm", "join", "--token", token, f"{NODES[0]}:2377")
        yield nodes
        worker.docker("swarm", "leave")
        manager.docker("swarm", "leave", "--force")


def test_a_service_on_two_nodes(nodes: Sequence[Lab]) -> None:
    """It survives restarts and SIGKILL of the plugin and of dockerd, on the manager and the worker; nothing is left."""
    manager = nodes[0]
    for node in nodes:
        node.docker("network", "create", "--config-only", "--ipam-driver", "null", "-o", "cni.network=lan", "lan-node")
    before = [node.state() for node in nodes]
    manager.docker("network", "create", "--config-from", "lan-node", "--scope", "swarm", "-d", DRIVER, "lan")
    service = ("service", "create", "--detach", "--no-resolve-image", "--name", "web", "--mode", "global")
    manager.docker(*service, "--network", "lan", "--restart-delay", "1s", "busybox", "sleep", "3600")
    _wait_attached(nodes)
    _wait_found(nodes)

    for node in nodes:
        node.docker("plugin", "disable", "--force", PLUGIN)
        enable(node)
    _wait_attached(nodes)
    for node in nodes:
        _kill_plugin(node)
    _wait_attached(nodes)
    _wait_found(nodes)
    for signal_number in (signal.SIGKILL, signal.SIGTERM):
        for node in nodes:
            node.restart_dockerd(signal_number)
            _wait_attached(nodes)
            _wait_found(nodes)
    for node in nodes:  # a killed dockerd forgets the endpoints of its tasks
        wait_until(partial(_has_one_reservation, node), "the end of forgotten endpoints", _LIMIT_S, poll_s=1.0)

    manager.docker("service", "rm", "web")
    wait_until(lambda: not any(_tasks(node) for node in nodes), "the end of the tasks", _LIMIT_S, poll_s=1.0)
    wait_until(lambda: _removed(manager, "lan"), "the removal of the network", _LIMIT_S, poll_s=1.0)
    for node, state in zip(nodes, before, strict=True):
        for task in node.docker("ps", "--all", "--quiet").split():
            node.docker("rm", "--force", task)
        deadline = time.monotonic() + _LIMIT_S
        while (left := _left(node, state)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == []


def _left(node: Lab, before: LabState) -> list[str]:
    return [line for line in leftovers(before, node.state()).splitlines() if not _OF_SWARM.search(line)]


def _subnet(number: int) -> str:
    return f"10.92.{number}.0/24"


def _wait_attached(nodes: Sequence[Lab]) -> None:
    """Wait until a task runs on each node, and reaches the gateway of that node's configuration."""
    for number, node in enumerate(nodes):
        try:
            wait_until(partial(_is_attached, node, number), f"a task on node {number}", _LIMIT_S, poll_s=1.0)
        except LabError as exc:
            tasks = nodes[0].run("docker", "service", "ps", "--no-trunc", "web", check=False)
            raise LabError(f"{exc}\n{tasks.stdout}{tasks.stderr}") from exc


def _is_attached(node: Lab, number: int) -> bool:
    try:
        tasks = _tasks(node)
        addresses = [str(address.ip) for task in tasks for address in node.container(task).link("eth0").addresses]
        inside = f"10.92.{number}."
        return (
            bool(addresses)
            and all(address.startswith(inside) for address in addresses)
            and all(reaches(node.container(task), f"{inside}1") for task in tasks)
        )
    except CommandFailed:  # dockerd is starting, or the task has just ended
        return False


def _wait_found(nodes: Sequence[Lab]) -> None:
    """Wait until the tasks of each node find those of all nodes by the service's name, and no others."""
    for number, node in enumerate(nodes):
        wait_until(partial(_finds_all, node, nodes), f"the names on node {number}", _LIMIT_S, poll_s=1.0)


def _finds_all(node: Lab, nodes: Sequence[Lab]) -> bool:
    try:
        running = {task: one for one in nodes for task in _tasks(one)}
        addresses = {name: one.container(name).link("eth0").addresses for name, one in running.items()}
        wanted = {str(address.ip) for found in addresses.values() for address in found}
        asking = [task for task, one in running.items() if one is node]
        return bool(asking) and all(_resolve(node, task, "web") == wanted for task in asking)
    except CommandFailed:  # dockerd is starting, or a task has just ended
        return False


def _resolve(node: Lab, task: str, name: str) -> set[str]:
    """Return the addresses that Docker's name server tells a task."""
    answer = node.run("docker", "exec", task, "nslookup", name, "127.0.0.11", check=False).stdout
    return {*_ANSWER.findall(answer)} - {"127.0.0.11"}


def _kill_plugin(node: Lab) -> None:
    """Kill the daemon of the plugin, and wait until Docker has started it again."""
    (pid,) = daemon_pids(node)
    node.run("kill", "-KILL", pid)
    wait_until(lambda: daemon_pids(node) not in ([], [pid]), "the plugin's next daemon", _LIMIT_S)


def _has_one_reservation(node: Lab) -> bool:
    return len(node.state().reservations) == 1


def _tasks(node: Lab) -> list[str]:
    return node.docker("ps", "--quiet", "--filter", "label=com.docker.swarm.service.name=web").split()


def _removed(node: Lab, network: str) -> bool:
    done = node.run("docker", "network", "rm", network, check=False)
    return done.returncode == 0 or "not found" in done.stderr
