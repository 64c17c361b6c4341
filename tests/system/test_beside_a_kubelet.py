# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Pods and Docker containers share one CNI configuration, and neither runtime touches what belongs to the other.

The runtime of the pods is a stand-in that does what cri-dockerd does (its `network/cni/cni.go`): the namespace is that
of a sandbox container without a network, the container ID is that container's, and the cache is `/var/lib/cni/cache`.
"""

import json
import signal
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from tests.lab import Container, Lab
from tests.system.calls import wait_reconciled
from tests.system.scene import Scene, bridge, reaches

CACHE: Final = "/var/lib/cni/cache"
POD: Final = f"""
import asyncio, sys
from cni_invoker import Attachment, ConfigurationDirectories, Runtime
from cni_tool import CachedRuntime, FileCache
verb, name, container_id, netns = sys.argv[1:]
runtime = CachedRuntime(Runtime(["/opt/cni/bin", "/usr/lib/cni"]), FileCache("{CACHE}"))
network = ConfigurationDirectories("/etc/cni/net.d").index().find(name)
attachment = Attachment(container_id=container_id, ifname="eth0", netns=netns)
asyncio.run(getattr(runtime, verb)(network, attachment))
"""


class Pods:
    """The pods of a node."""

    def __init__(self, lab: Lab, network: str) -> None:
        self._lab = lab
        self._network = network
        self._ids: dict[str, str] = {}

    def start(self, name: str) -> Container:
        """Start a pod."""
        self._ids[name] = self._lab.docker("run", "-d", "--name", name, "--net", "none", "busybox", "sleep", "3600")
        self._run("add", name)
        return self._lab.container(name)

    def stop(self, name: str) -> None:
        """Stop a pod."""
        self._run("delete", name)
        self._lab.docker("rm", "-f", name)
        del self._ids[name]

    def stop_all(self) -> None:
        """Stop those that run."""
        for name in tuple(self._ids):
            self.stop(name)

    def collect(self) -> None:
        """Run GC as a runtime does that knows its own pods only."""
        valid = [word for one in self._ids.values() for word in ("--valid", f"{one}/eth0")]
        command = (sys.executable, "-m", "cni_tool", "gc", self._network, *valid, "--cache-dir", CACHE)
        self._lab.run(*command)

    def _run(self, verb: str, name: str) -> None:
        pid = self._lab.docker("inspect", "--format", "{{.State.Pid}}", name)
        command = (sys.executable, "-c", POD, verb, self._network, self._ids[name], f"/proc/{pid}/ns/net")
        self._lab.run(*command)


@pytest.fixture(name="network")
def share_configuration(private_scene: Scene) -> str:
    """The name of a CNI configuration; Docker's network has the same name."""
    name = private_scene.configure(bridge(private_scene.subnet()))
    return private_scene.network(name, name=name)


@pytest.fixture(name="pods")
def run_pods(private_scene: Scene, network: str) -> Iterator[Pods]:
    """The pods of the node, which end with the test."""
    pods = Pods(private_scene.lab, network)
    yield pods
    pods.stop_all()
    private_scene.lab.remove(CACHE)


@pytest.mark.long
def test_pods_and_containers_on_one_configuration(private_scene: Scene, network: str, pods: Pods) -> None:
    """They reach each other while both come and go, while the daemon is killed, and after GC of the pods."""
    scene, lab = private_scene, private_scene.lab
    lab.stop_daemon()
    lab.start_daemon("--reconcile-interval", "1")
    before = lab.state()
    pod, container = pods.start("pod"), scene.run(network)
    assert _reach_each_other(pod, container)
    for number in range(3):
        pods.start(f"pod{number}")
        other = scene.run(network)
        addresses = [_address(lab.container(name)) for name in ("pod", f"pod{number}", container.name, other.name)]
        assert len(set(addresses)) == len(addresses)
        if number % 2:
            lab.restart_daemon(signal.SIGKILL)
        pods.stop(f"pod{number}")
        lab.docker("rm", "-f", other.name)
    wait_reconciled(lab)
    pods.collect()
    assert _reach_each_other(pod, container)

    pods.stop("pod")  # each side cleans up completely, and takes nothing from the other
    assert reaches(container, _gateway(lab, network))
    pod = pods.start("pod")
    lab.docker("rm", "-f", container.name)
    wait_reconciled(lab)
    assert reaches(pod, _gateway(lab, network))
    pods.stop("pod")
    assert lab.wait_clean(before) == ""


def _reach_each_other(first: Container, second: Container) -> bool:
    return reaches(first, _address(second)) and reaches(second, _address(first))


def _address(container: Container) -> str:
    return str(container.link().addresses[0].ip)


def _gateway(lab: Lab, network: str) -> str:
    document = json.loads(lab.read(f"/etc/cni/net.d/{network}.conflist"))
    subnet: str = document["plugins"][0]["ipam"]["ranges"][0][0]["subnet"]
    return subnet.replace(".0/24", ".1")
