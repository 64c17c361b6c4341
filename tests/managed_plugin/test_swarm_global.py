# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An instance of global scope: a swarm's manager gives all addresses, on a network that two nodes share."""

import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.lab import CommandFailed, Engine, Lab, LabError, leftovers, wait_until
from tests.managed_plugin.managed import BUILT
from tests.managed_plugin.managed import LIMIT_S as PLUGIN_LIMIT_S
from tests.managed_plugin.swarm import (
    LIMIT_S,
    connect,
    remove,
    resolve,
    swarm,
    tasks,
    three_labs,
    two_labs,
    wait_leader,
)
from tests.pages import read_blocks
from tests.system.scene import reaches

pytestmark = pytest.mark.timeout(900)

PAGE: Final = Path(__file__).parents[2] / "docs" / "swarm.md"
PLUGIN: Final = "cni-bridge-global"
DRIVER: Final = f"{PLUGIN}:latest"
SUBNET: Final = "10.50.0.0/24"
INSTALL, CREATE = (block.text for block in read_blocks(PAGE, section="One subnet for all nodes"))
SERVICE: Final = ("service", "create", "--detach", "--no-resolve-image", "--endpoint-mode", "dnsrr", "--name", "web")
RUN: Final = ("--restart-delay", "1s", "busybox", "sleep", "3600")
FOUR: Final = ("--replicas", "4", "--replicas-max-per-node", "2", *RUN)


@pytest.fixture(name="nodes")
def make_nodes(engine: Engine) -> Iterator[Sequence[Lab]]:
    """A manager and a worker whose bridges `br-lan` are connected, with the plugin and its list; no swarm yet."""
    with two_labs(engine) as nodes:
        install(nodes)
        yield nodes


def install(nodes: Sequence[Lab]) -> None:
    """Connect nodes by a bridge `br-lan` each, and install the plugin and the list of docs/swarm.md."""
    connect(nodes, "br-lan")
    for node in nodes:
        node.run("iptables", "-I", "DOCKER-USER", "-s", SUBNET, "-d", SUBNET, "-j", "ACCEPT")
        node.run("sh", "-e", "-c", INSTALL.replace("build/plugin", str(BUILT)), timeout_s=PLUGIN_LIMIT_S)


def create(manager: Lab, name: str, *options: str) -> None:
    """Make a network of the swarm with the command of docs/swarm.md on the manager."""
    command, _, _ = CREATE.replace(" shared\n", f" {name}\n").partition("docker service create")
    manager.run("sh", "-e", "-c", command.replace(f"--subnet {SUBNET}", " ".join(options)) if options else command)


def test_one_subnet_on_two_nodes(nodes: Sequence[Lab]) -> None:
    """Addresses are unique, names resolve on both nodes, kills of dockerd are survived, and nothing is left."""
    manager, worker = nodes
    with swarm(manager, worker):
        before = [node.state() for node in nodes]
        create(manager, "shared")
        manager.docker(*SERVICE, "--network", "shared", *FOUR)
        wait_connected(nodes)

        worker.docker("run", "-d", "--name", "any", "--network", "shared", "busybox", "sleep", "3600")
        chosen = ("--ip", "10.50.0.99", "--network", "shared", "busybox", "sleep", "3600")
        worker.docker("run", "-d", "--name", "chosen", *chosen)
        assert [str(one.ip) for one in worker.container("chosen").link("eth0").addresses] == ["10.50.0.99"]
        refused = worker.run("docker", "run", "--rm", *chosen, check=False)
        assert "context deadline exceeded" in refused.stderr  # all that Docker says
        log = "".join(process.log() for process in manager.processes)
        assert "task allocation failure" in log
        assert "Address already in use" in log
        (task, *_) = tasks(manager, "web")
        (address,) = (str(one.ip) for one in worker.container("any").link("eth0").addresses)
        assert reaches(manager.container(task), address)
        worker.docker("rm", "--force", "any", "chosen")

        for node in (worker, manager):
            node.restart_dockerd(signal.SIGKILL)
            wait_connected(nodes)

        remove(manager, nodes, "shared", before)


def test_networks_that_a_swarm_cannot_have(nodes: Sequence[Lab]) -> None:
    """Each is refused with what to change, or its reason is in the log; nothing of it is left on any node."""
    manager, worker = nodes
    alone = manager.state()
    with pytest.raises(CommandFailed, match=r"is in no swarm|This node is not a swarm manager"):
        create(manager, "early")
    assert not leftovers(alone, manager.state())
    with swarm(manager, worker):
        before = [node.state() for node in nodes]
        for name, subnets, error in (
            ("other", ["10.51.0.0/24"], "Docker's IPAM driver chose 10.51.0.0/24"),
            ("two", ["10.52.0.0/24", "10.53.0.0/24"], "one subnet, from which the swarm's manager gives addresses"),
            ("six", ["10.54.0.0/24", "fd54::/64 --ipv6"], "IPv4 addresses only"),
        ):
            create(manager, name, *(f"--subnet {subnet}" for subnet in subnets))
            manager.docker(*SERVICE, "--network", name, "--restart-max-attempts", "1", *RUN)
            wait_until(partial(is_explained, manager, name, error), f"the error of {name}", LIMIT_S, poll_s=1.0)
            remove(manager, nodes, name, before)
        create(manager, "first")
        create(manager, "second")
        manager.docker(*SERVICE, "--network", "second", *RUN)
        wait_until(partial(is_unallocated, manager, "second"), "the reason in the log", LIMIT_S, poll_s=1.0)
        assert not is_unallocated(manager, "first")
        manager.docker("network", "rm", "first")
        remove(manager, nodes, "second", before)


def is_explained(manager: Lab, network: str, error: str) -> bool:
    """Return whether a task has the error, or the swarm gives no subnet, as docs/swarm.md says of 28.5 for IPv6."""
    return is_shown(manager, error) or is_unallocated(manager, network)


def is_unallocated(manager: Lab, network: str) -> bool:
    """Return whether a manager shows no subnet of a network, and its log as the leader says why."""
    shown, identity = (
        manager.docker("network", "inspect", "--format", form, network) for form in ("{{.IPAM.Config}}", "{{.Id}}")
    )
    lines = "".join(process.log() for process in manager.processes).splitlines()
    return shown == "[]" and any("ailed allocation for network" in line and identity in line for line in lines)


def test_three_managers(engine: Engine) -> None:
    """If the leader is lost, the next one gives addresses and makes networks; nothing is left on any node."""
    with three_labs(engine) as nodes:
        install(nodes)
        with swarm(*nodes, role="manager"):
            before = [node.state() for node in nodes]
            create(nodes[0], "shared")
            nodes[0].docker(*SERVICE, "--network", "shared", *FOUR)
            wait_connected(nodes)

            nodes[0].stop_dockerd(signal.SIGKILL)
            leader = wait_leader(nodes[1:])
            wait_connected(nodes[1:])
            leader.docker("service", "update", "--detach", "--force", "web")
            wait_until(partial(is_updated, leader), "the end of an update", LIMIT_S, poll_s=1.0)
            wait_connected(nodes[1:])
            nodes[0].start_dockerd()
            leader.docker("service", "update", "--detach", "--force", "web")
            wait_until(partial(is_updated, leader), "the end of an update", LIMIT_S, poll_s=1.0)
            wait_connected(nodes)
            remove(leader, nodes, "shared", before)


def test_a_node_without_the_plugin(nodes: Sequence[Lab]) -> None:
    """Swarm places no task on it, says so of a task that must run there, and starts it when the plugin is there."""
    manager, worker = nodes
    with swarm(manager, worker):
        before = [node.state() for node in nodes]
        (node,) = manager.docker("node", "ls", "--quiet", "--filter", "role=worker").split()
        wait_until(lambda: reports(manager, node), "a node that reports the plugin", LIMIT_S, poll_s=1.0)
        worker.docker("plugin", "disable", "--force", PLUGIN)
        wait_until(lambda: not reports(manager, node), "a node that reports no plugin", LIMIT_S, poll_s=1.0)

        create(manager, "shared")
        manager.docker(*SERVICE, "--network", "shared", "--replicas", "3", *RUN)
        wait_until(lambda: len(tasks(manager, "web")) == 3, "three tasks on the manager", LIMIT_S, poll_s=1.0)
        assert tasks(worker, "web") == []
        refused = worker.run("docker", "run", "--rm", "--network", "shared", "busybox", "true", check=False)
        assert "attaching to network failed" in refused.stderr

        manager.docker("service", "update", "--detach", "--constraint-add", "node.role==worker", "web")
        pending = partial(is_shown, manager, "missing plugin on 1 node")
        wait_until(pending, "the reason why a task is pending", LIMIT_S, poll_s=1.0)
        worker.docker("plugin", "enable", PLUGIN, timeout_s=PLUGIN_LIMIT_S)
        wait_until(lambda: len(tasks(worker, "web")) == 3, "three tasks on the worker", LIMIT_S, poll_s=1.0)
        remove(manager, nodes, "shared", before)


def reports(manager: Lab, node: str) -> bool:
    """Return whether the command of docs/swarm.md shows that a node has the plugin."""
    (block,) = read_blocks(PAGE, section="A node without the plugin")
    (line,) = (one for one in manager.run("sh", "-e", "-c", block.text).stdout.splitlines() if one.startswith(node))
    return DRIVER in line


def is_updated(manager: Lab) -> bool:
    """Return whether the last update of the service has replaced all of its tasks."""
    shown = manager.run("docker", "service", "inspect", "--format", "{{.UpdateStatus.State}}", "web", check=False)
    return shown.stdout.strip() == "completed"


def wait_connected(nodes: Sequence[Lab]) -> None:
    """Wait until four tasks run, on both nodes, with an address each, and all are found and reached from both."""
    try:
        wait_until(partial(are_connected, nodes), "four connected tasks", LIMIT_S, poll_s=1.0)
    except LabError as exc:
        shown = nodes[0].run("docker", "service", "ps", "--no-trunc", "web", check=False)
        raise LabError(f"{exc}\n{shown.stdout}{shown.stderr}") from exc


def are_connected(nodes: Sequence[Lab]) -> bool:
    """Return whether they are."""
    try:
        running = [(node, task) for node in nodes for task in tasks(node, "web")]
        addresses = [str(one.ip) for node, task in running for one in node.container(task).link("eth0").addresses]
        return (
            len(running) == len(set(addresses)) == 4
            and all(tasks(node, "web") for node in nodes)
            and all(resolve(node, task, "web") == set(addresses) for node, task in running)
            and all(reaches(node.container(task), address) for node, task in running for address in addresses)
        )
    except LabError:  # dockerd is starting, or a task has just ended
        return False


def is_shown(manager: Lab, text: str) -> bool:
    """Return whether `docker service ps` shows an error."""
    return text in manager.run("docker", "service", "ps", "--no-trunc", "web", check=False).stdout
