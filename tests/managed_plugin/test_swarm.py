# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A swarm of two nodes: each node's configuration attaches its tasks, and all of them are found by name."""

import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.lab import Engine, Lab, LabError, wait_until
from tests.lab.reboot import end_boot
from tests.managed_plugin.managed import daemon_pids, install, list_on
from tests.managed_plugin.swarm import (
    LIMIT_S,
    NODES,
    fetch,
    is_removed,
    link,
    remove,
    resolve,
    swarm,
    tasks,
    two_labs,
    wait_found,
)
from tests.pages import read_blocks
from tests.system.scene import reaches

pytestmark = pytest.mark.timeout(900)  # Docker packs and unpacks the plugin, and swarm takes its time

PORT: Final = 8088
PAGE: Final = Path(__file__).parents[2] / "docs" / "swarm.md"
SETTINGS, NETWORK = (block.text for block in read_blocks(PAGE, section=""))
REPLACE, UPDATE, DRAIN, ACTIVATE = (block.text for block in read_blocks(PAGE, section="Upgrade"))


@pytest.fixture(name="nodes")
def make_nodes(engine: Engine) -> Iterator[Sequence[Lab]]:
    """A manager and a worker with a managed plugin each, and the configuration `lan` with another subnet."""
    with two_labs(engine) as nodes:
        for number, node in enumerate(nodes):
            node.write("/etc/cni/net.d/10-lan.conflist", list_on(_subnet(number), publishes=True))
            install(node)
        with swarm(*nodes):
            yield nodes


def test_a_service_on_two_nodes(nodes: Sequence[Lab]) -> None:
    """It survives an upgrade, restarts and SIGKILL, of plugin and dockerd, on manager and worker; nothing is left."""
    manager = nodes[0]
    for node in nodes:
        node.run("sh", "-e", "-c", SETTINGS)
    before = [node.state() for node in nodes]
    manager.run("sh", "-e", "-c", NETWORK.partition("docker service create")[0])
    service = ("service", "create", "--detach", "--no-resolve-image", "--name", "web", "--mode", "global")
    published = ("--publish", f"mode=host,published={PORT},target=80")
    serve = ("sh", "-c", "hostname > /index.html; exec httpd -f -p 80 -h /")
    manager.docker(*service, *published, "--network", "lan", "--restart-delay", "1s", "busybox", *serve)
    _wait_attached(nodes)
    wait_found(nodes, "web")
    _wait_published(nodes)

    _upgrade(nodes)
    for node in nodes:
        _kill_plugin(node)
    _wait_attached(nodes)
    wait_found(nodes, "web")
    for signal_number in (signal.SIGKILL, signal.SIGTERM):
        for node in nodes:
            node.restart_dockerd(signal_number)
            _wait_attached(nodes)
            wait_found(nodes, "web")
    for node in nodes:  # a killed dockerd forgets the endpoints of its tasks
        wait_until(partial(_has_one_reservation, node), "the end of forgotten endpoints", LIMIT_S, poll_s=1.0)

    _reboot(nodes)
    _wait_attached(nodes)
    wait_found(nodes, "web")
    wait_until(partial(_has_one_reservation, nodes[1]), "the end of the endpoints of before", LIMIT_S, poll_s=1.0)

    manager.docker("network", "create", "-d", "overlay", "over")
    beside = ("service", "create", "--detach", "--no-resolve-image", "--mode", "global", "--endpoint-mode", "dnsrr")
    manager.docker(*beside, "--name", "inner", "--network", "over", "busybox", "sleep", "3600")
    manager.docker(*beside, "--name", "both", "--network", "over", "--network", "lan", "busybox", "sleep", "3600")
    for number, node in enumerate(nodes):
        finds = partial(_finds_beside, node, nodes)
        wait_until(finds, f"the names on both networks on node {number}", LIMIT_S, poll_s=1.0)
    manager.docker("service", "rm", "both", "inner")
    wait_until(lambda: is_removed(manager, "over"), "the removal of the overlay", LIMIT_S, poll_s=1.0)

    remove(manager, nodes, "lan", before)


def _upgrade(nodes: Sequence[Lab]) -> None:
    """Replace the plugin of one node after the other, then all tasks: first at once, then node by node."""
    manager, worker = nodes
    for node in (worker, manager):
        running = [tasks(one, "web") for one in nodes]
        node.run("sh", "-e", "-c", REPLACE, timeout_s=LIMIT_S)
        assert [tasks(one, "web") for one in nodes] == running
        _wait_attached(nodes)
        wait_found(nodes, "web")
    manager.run("sh", "-e", "-c", UPDATE, timeout_s=LIMIT_S)
    _wait_attached(nodes)
    for node in nodes:
        name = node.docker("info", "--format", "{{.Swarm.NodeID}}").strip()
        manager.run("sh", "-e", "-c", DRAIN.replace("node1", name))
        wait_until(partial(_has_no_task, node), "the end of a node's tasks", LIMIT_S, poll_s=1.0)
        manager.run("sh", "-e", "-c", ACTIVATE.replace("node1", name))
        _wait_attached(nodes)
    wait_found(nodes, "web")


def _has_no_task(node: Lab) -> bool:
    return not tasks(node, "web")


def _reboot(nodes: Sequence[Lab]) -> None:
    """Reboot the worker, and connect it again."""
    manager, worker = nodes
    worker.stop_dockerd(signal.SIGKILL)
    end_boot(worker, 1)
    link(manager, worker, "node0")
    for node, address in zip(nodes, NODES, strict=True):
        node.run("ip", "addr", "add", f"{address}/24", "dev", "node0")
    worker.start_dockerd()


def _finds_beside(node: Lab, nodes: Sequence[Lab]) -> bool:
    """Return whether a task on an overlay and on our network finds the services of both."""
    try:
        (task,) = tasks(node, "both")
        return all(
            resolve(node, task, service) == {_address(other, service) for other in nodes}
            and reaches(node.container(task), _address(node, service))
            for service in ("web", "inner")
        )
    except (LabError, ValueError):  # not all tasks run yet
        return False


def _address(node: Lab, service: str) -> str:
    """Return the address of the task of a service on a node."""
    (task,) = tasks(node, service)
    return str(node.container(task).link("eth0").addresses[0].ip)


def _subnet(number: int) -> str:
    return f"10.92.{number}.0/24"


def _wait_attached(nodes: Sequence[Lab]) -> None:
    """Wait until a task runs on each node, and reaches the gateway of that node's configuration."""
    for number, node in enumerate(nodes):
        try:
            wait_until(partial(_is_attached, node, number), f"a task on node {number}", LIMIT_S, poll_s=1.0)
        except LabError as exc:
            shown = nodes[0].run("docker", "service", "ps", "--no-trunc", "web", check=False)
            raise LabError(f"{exc}\n{shown.stdout}{shown.stderr}") from exc


def _is_attached(node: Lab, number: int) -> bool:
    try:
        found = tasks(node, "web")
        addresses = [str(address.ip) for task in found for address in node.container(task).link("eth0").addresses]
        inside = f"10.92.{number}."
        return (
            bool(addresses)
            and all(address.startswith(inside) for address in addresses)
            and all(reaches(node.container(task), f"{inside}1") for task in found)
        )
    except LabError:  # dockerd is starting, or the task has just ended
        return False


def _wait_published(nodes: Sequence[Lab]) -> None:
    """Wait until the port of each node's task answers the other node."""
    for number, (node, other) in enumerate(zip(nodes, reversed(nodes), strict=True)):
        (task,) = tasks(node, "web")
        accepted = ("DOCKER-USER", "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT")
        node.run("iptables", "-I", *accepted)  # as docs/recipes.md says
        is_answered = partial(_answers, other, NODES[number], task[:12])
        wait_until(is_answered, f"the port of node {number}", LIMIT_S, poll_s=1.0)
        node.run("iptables", "-D", *accepted)


def _answers(node: Lab, address: str, name: str) -> bool:
    return fetch(node, address, PORT) == name


def _kill_plugin(node: Lab) -> None:
    """Kill the daemon of the plugin, and wait until Docker has started it again."""
    (pid,) = daemon_pids(node)
    node.run("kill", "-KILL", pid)
    wait_until(lambda: daemon_pids(node) not in ([], [pid]), "the plugin's next daemon", LIMIT_S)


def _has_one_reservation(node: Lab) -> bool:
    return len(node.state().reservations) == 1
