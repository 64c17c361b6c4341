# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`macvlan` refuses at Join the MAC that an ended container still holds; its successor waits.

Each container holds what its own successor needs, so every refusal passes when another container has left.
"""

import signal

import pytest

from tests.lab import Lab, wait_until
from tests.system.scene import Scene, macvlan

MACS = [f"02:42:ac:00:00:{number:02x}" for number in range(1, 9)]

pytestmark = pytest.mark.usefixtures("sandbox_before_join")


def running(lab: Lab) -> set[str]:
    """Return the names of the running containers."""
    return set(lab.docker("ps", "--format", "{{.Names}}").split())


@pytest.mark.long
@pytest.mark.parametrize("mode", ["hybrid", "direct"])
def test_many_containers_restart_at_once(scene: Scene, mode: str) -> None:
    """Each gets its MAC again, although eight links are being deleted and each call sees all of them."""
    network = scene.network(scene.configure(macvlan(scene.subnet())), mode=mode)
    containers = [scene.run(network, "--mac-address", mac) for mac in MACS]
    restarts = " ".join(f"docker restart -t 0 {container.name} &" for container in containers)
    scene.lab.run("sh", "-c", f"{restarts} wait")
    assert running(scene.lab) >= {container.name for container in containers}
    assert [container.link().mac for container in containers] == MACS


@pytest.mark.long
def test_restart_policies_after_a_crash_of_docker(private_scene: Scene) -> None:
    """Links that Docker has forgotten have the MACs; they are torn down first."""
    lab = private_scene.lab
    configuration = private_scene.configure(macvlan(private_scene.subnet()))
    network = private_scene.network(configuration, "-o", "cni.attach=sandbox")
    before = lab.state()
    names = {private_scene.run(network, "--mac-address", mac, "--restart", "always").name for mac in MACS}
    lab.restart_dockerd(signal.SIGKILL)
    wait_until(lambda: running(lab) == names, "all containers are running again", timeout_s=30)
    lab.docker("rm", "-f", *names)
    assert lab.wait_clean(before, timeout_s=20) == ""
