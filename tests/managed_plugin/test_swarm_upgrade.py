# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A swarm of two nodes whose managed plugin is upgraded, from a version without names on all nodes."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str
from tests.lab import Engine, Lab, LabError, wait_until
from tests.managed_plugin.managed import DRIVER, install, list_on, status
from tests.managed_plugin.older import BEFORE_NAMES, SAME_RECORDS, build_older
from tests.managed_plugin.swarm import LIMIT_S, is_removed, remove, resolve, swarm, tasks, two_labs, wait_found
from tests.pages import read_blocks
from tests.system.scene import reaches

PAGE: Final = Path(__file__).parents[2] / "docs" / "swarm.md"
pytestmark = pytest.mark.timeout(900)

REPLACE, UPDATE, DRAIN, ACTIVATE = (block.text for block in read_blocks(PAGE, section="Upgrade"))
SERVICE: Final = ("service", "create", "--detach", "--no-resolve-image", "--mode", "global", "--network", "lan")
SERVICES: Final = ("web", "other")
RUN: Final = ("--restart-delay", "1s", "busybox", "sleep", "3600")


@pytest.fixture(name="nodes")
def make_nodes(request: pytest.FixtureRequest, engine: Engine, tmp_path: Path) -> Iterator[Sequence[Lab]]:
    """A manager and a worker with the plugin of an older version each, in a swarm."""
    older = build_older(request.param, tmp_path)
    with two_labs(engine) as nodes:
        for number, node in enumerate(nodes):
            node.write("/etc/cni/net.d/10-lan.conflist", list_on(f"10.92.{number}.0/24"))
            install(node, plugin=older)
            options = ("--config-only", "--ipam-driver", "null", "-o", "cni.network=lan")
            node.docker("network", "create", *options, "lan-node")
        with swarm(*nodes):
            yield nodes


@pytest.mark.parametrize("nodes", [BEFORE_NAMES], ids=["before-names"], indirect=True)
def test_an_update_brings_names(nodes: Sequence[Lab]) -> None:
    """Tasks go on while one node after the other is upgraded, and names come with `docker service update --force`."""
    manager, worker = nodes
    before = [node.state() for node in nodes]
    create(manager, nodes)
    assert [resolve(node, task, "web") for node in nodes for task in tasks(node, "web")] == [set(), set()]
    for node in (worker, manager):
        known = replace(nodes, node)
        # the new version does not know these records, and makes them again of what it finds
        wait_until(partial(knows, node, known), "the endpoints of before", LIMIT_S)
    type_block(manager, UPDATE)
    wait_found(nodes, "web")
    remove(manager, nodes, "lan", before)


@pytest.mark.parametrize("nodes", [SAME_RECORDS], ids=["same-records"], indirect=True)
def test_several_services_on_one_network(nodes: Sequence[Lab]) -> None:
    """New tasks start on nodes of both versions; names come when a node has ended all tasks of before at once."""
    manager, worker = nodes
    before = [node.state() for node in nodes]
    create(manager, nodes)
    for node in (worker, manager):
        known = replace(nodes, node)
        assert endpoints(node) == known
        if node is worker:
            manager.docker(*SERVICE, "--name", "other", *RUN)
            wait_attached(nodes, "other")
    for node in (worker, manager):
        name = node.docker("info", "--format", "{{.Swarm.NodeID}}")
        type_block(manager, DRAIN.replace("node1", name))
        wait_until(partial(has_no_tasks, node), "the end of a node's tasks", LIMIT_S, poll_s=1.0)
        type_block(manager, ACTIVATE.replace("node1", name))
    for service in SERVICES:
        wait_found(nodes, service)
    manager.docker("service", "rm", "other")
    remove(manager, nodes, "lan", before)
    for node in nodes:
        wait_until(partial(is_removed, node, "lan-node"), "the end of the network of settings", LIMIT_S, poll_s=1.0)


def create(manager: Lab, nodes: Sequence[Lab]) -> None:
    """Make the network and the service `web`, and wait until its tasks are attached."""
    manager.docker("network", "create", "--config-from", "lan-node", "--scope", "swarm", "-d", DRIVER, "lan")
    manager.docker(*SERVICE, "--name", "web", *RUN)
    wait_attached(nodes, "web")


def replace(nodes: Sequence[Lab], node: Lab) -> Mapping[str, JsonObject]:
    """Replace the plugin of a node, whose tasks go on; return the endpoints that the older version knew."""
    running = [tasks(one, service) for one in nodes for service in SERVICES]
    known = endpoints(node)
    assert known
    type_block(node, REPLACE)
    assert [tasks(one, service) for one in nodes for service in SERVICES] == running
    wait_attached(nodes, "web")
    return known


def endpoints(node: Lab) -> Mapping[str, JsonObject]:
    """Return the endpoints that a daemon knows, by ID."""
    return {get_str(one, "id"): one for one in get_objects(status(node), "endpoints")}


def knows(node: Lab, known: Mapping[str, JsonObject]) -> bool:
    """Return whether a daemon knows exactly these endpoints."""
    return endpoints(node) == known


def has_no_tasks(node: Lab) -> bool:
    """Return whether no task of a service runs on a node."""
    return not any(tasks(node, service) for service in SERVICES)


def type_block(node: Lab, commands: str) -> None:
    """Run commands of the page on a node."""
    node.run("sh", "-e", "-c", commands, timeout_s=LIMIT_S)


def wait_attached(nodes: Sequence[Lab], service: str) -> None:
    """Wait until a task of a service runs on each node, and reaches the gateway of that node's configuration."""
    for number, node in enumerate(nodes):
        attached = partial(is_attached, node, number, service)
        wait_until(attached, f"a task of {service} on node {number}", LIMIT_S, poll_s=1.0)


def is_attached(node: Lab, number: int, service: str) -> bool:
    """Return whether a task does."""
    try:
        return any(reaches(node.container(task), f"10.92.{number}.1") for task in tasks(node, service))
    except LabError:  # a task has just ended
        return False
