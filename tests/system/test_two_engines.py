# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Two engines use one plugin socket: what one does not know is not forgotten if the other has made it."""

import signal
from collections.abc import Iterator

import pytest

from tests.lab import Lab, Process, wait_until
from tests.lab.docker_api import DOCKER_SOCKET
from tests.lab.unix_http import is_answering
from tests.system.calls import wait_reconciled
from tests.system.scene import Scene, bridge, wait_logged

SOCKET = "/run/second.sock"
HOST = f"unix://{SOCKET}"
DIRECTORIES = ("/var/lib/second", "/run/second")


@pytest.fixture(name="second")
def start_second(private_scene: Scene) -> Iterator[Process]:
    """A second dockerd, without networks and containers of its own."""
    lab = private_scene.lab
    process = lab.spawn(
        *("dockerd", f"--host={HOST}", "--data-root=/var/lib/second", "--exec-root=/run/second"),
        *("--pidfile=/run/second.pid", "--bridge=none", "--iptables=false", "--ip6tables=false"),
        *("--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{lab.namespaces.name}"),
    )
    wait_until(lambda: is_answering(lab.path(SOCKET), "GET", "/_ping"), "the second dockerd")
    yield process
    process.kill(signal.SIGTERM)
    assert process.wait(30.0) == 0
    for directory in DIRECTORIES:
        lab.remove(directory)


def second_docker(lab: Lab, *arguments: str) -> str:
    """Run a command of the second engine."""
    return lab.docker("--host", HOST, *arguments)


@pytest.mark.moves("of two engines only one can be asked about the networks of a container")
@pytest.mark.usefixtures("second")
def test_networks_of_both_engines_stay(private_scene: Scene) -> None:
    """Whichever engine `--docker-host` is, containers start on the networks of both."""
    scene, lab = private_scene, private_scene.lab
    lab.run("sh", "-c", f"docker save busybox | docker --host {HOST} load")
    mine, theirs = (scene.configure(bridge(scene.subnet())) for _ in range(2))
    network = scene.network(mine)
    options = ("-d", "cni-bridge", "--ipam-driver", "null", "-o", f"cni.network={theirs}")
    second_docker(lab, "network", "create", *options, "theirs")
    for docker_host in (f"unix://{DOCKER_SOCKET}", HOST):
        lab.stop_daemon()
        lab.start_daemon("--reconcile-interval", "1", "--docker-host", docker_host)
        wait_reconciled(lab)
        lab.docker("run", "--rm", "--net", network, "busybox", "true")
        second_docker(lab, "run", "--rm", "--net", "theirs", "busybox", "true")
        assert lab.daemon is not None
        assert "network.dead" not in lab.daemon.log()
        wait_logged(lab, "network.foreign")
    second_docker(lab, "network", "rm", "theirs")
