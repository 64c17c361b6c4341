# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks that do not name a file: those of the daemon's configuration, and those that bring their list themselves."""

import json
import signal
import sys

import pytest

from tests.lab import wait_until
from tests.system.scene import Scene, bridge, reaches, wait_logged

FILE = "/etc/cni-bridge/config.toml"
TABLE = '[[networks]]\nname = "{name}"\nconfiguration = "{configuration}"\n'


@pytest.mark.smoke
def test_a_locked_network(private_scene: Scene) -> None:
    """It is there as soon as the daemon runs, nothing else gets its configuration, and a removed one comes back."""
    scene, lab = private_scene, private_scene.lab
    subnet = scene.subnet()
    configuration = scene.configure(bridge(subnet))
    lab.write(FILE, TABLE.format(name="kubernetes", configuration=configuration) + "locked = true\n")
    lab.restart_daemon()
    wait_logged(lab, "network.managed_created")
    container = scene.run("kubernetes")
    assert reaches(container, subnet.gateway)
    error = scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={configuration}")
    assert "only network kubernetes may use it" in error
    for named in (("--ipam-opt", f"cni.ipam={configuration}"), ("--subnet", subnet.ipv4)):
        error = lab.run("docker", "network", "create", "--ipam-driver", "cni-bridge", *named, "own", check=False).stderr
        assert "only network kubernetes may use it" in error
    other = scene.network(scene.configure(bridge(scene.subnet())))
    asked = f"name={other},driver-opt=cni.network={configuration}"
    assert "only network kubernetes may use it" in scene.run_refusal(asked)
    elsewhere = scene.configure(bridge(scene.subnet()))
    assert "network kubernetes is locked" in scene.run_refusal(f"name=kubernetes,driver-opt=cni.network={elsewhere}")
    lab.docker("network", "rm", other)
    lab.docker("rm", "-f", container.name)

    lab.docker("network", "rm", "kubernetes")
    wait_until(lambda: "kubernetes" in _networks(scene), "the network's return", 30)

    lab.write(FILE, TABLE.format(name="second", configuration=configuration))
    lab.restart_daemon()
    wait_until(lambda: "second" in _networks(scene), "the network that was added", 30)
    lab.docker("network", "rm", "kubernetes")
    lab.remove(FILE)
    lab.restart_daemon()
    lab.docker("network", "rm", "second")
    assert _networks(scene) == {"bridge", "host", "none"}


def test_a_network_that_brings_its_list(private_scene: Scene) -> None:
    """It is refused unless the operator allows it; it survives the daemon, and goes with the network."""
    scene, lab = private_scene, private_scene.lab
    subnet = scene.subnet()
    document = json.dumps({"cniVersion": "1.0.0", "name": "brought", "plugins": [*bridge(subnet)]})
    options = ("--ipam-driver", "null", "-o", f"cni.conflist={document}")
    assert "allow-inline = true" in scene.creation_refusal(*options)
    lab.write(FILE, "allow-inline = true\n")
    lab.restart_daemon()
    unusable = json.dumps({"cniVersion": "1.0.0", "name": "brought", "plugins": [{"type": "no-such-plugin"}]})
    refusal = scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.conflist={unusable}")
    assert "brought (option cni.conflist) cannot be used: no-such-plugin: not found in " in refusal
    lab.docker("network", "create", "-d", "cni-bridge", *options, "brought")
    lab.restart_daemon(signal.SIGKILL)
    container = scene.run("brought")
    assert reaches(container, subnet.gateway)
    assert subnet.ipv4 in lab.run(sys.executable, "-m", "cnm_bridge", "explain", "brought").stdout
    lab.docker("rm", "-f", container.name)
    lab.docker("network", "rm", "brought")
    on_disk = scene.configure(bridge(subnet), name="brought")
    assert f"use -o cni.network={on_disk}" in scene.creation_refusal(*options)
    lab.remove(FILE)


def _networks(scene: Scene) -> set[str]:
    return set(scene.lab.docker("network", "ls", "--format", "{{.Name}}").split())
