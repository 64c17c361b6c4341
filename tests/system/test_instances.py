# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Two daemons are two drivers of one Docker host, and each leaves alone what belongs to the other."""

import signal
from collections.abc import Iterator

import pytest

from cni_bridge_spec import get_objects
from tests.lab import ADMIN_SOCKET, DAEMON_COMMAND, Container, Lab, Process, wait_until
from tests.lab.unix_http import is_answering
from tests.system.calls import ask_status, wait_reconciled
from tests.system.scene import Scene, bridge, reaches

BLUE = "blue"
SOCKET = f"/run/docker/plugins/{BLUE}.sock"
STATE, RUN = f"/var/lib/cni-bridge-{BLUE}", f"/run/cni-bridge-{BLUE}"
ADMIN = f"{RUN}/admin.sock"
UNKNOWN = "f" * 64
OFTEN = ("--reconcile-interval", "1")
SECOND = (*DAEMON_COMMAND, "--socket", SOCKET, "--state-dir", STATE, "--run-dir", RUN, *OFTEN)


@pytest.fixture(name="second")
def start_second(private_scene: Scene) -> Iterator[list[Process]]:
    """A second daemon, `blue`; the list has its processes, the last one runs."""
    lab = private_scene.lab
    lab.stop_daemon()
    lab.start_daemon(*OFTEN)
    processes = [_start(lab)]
    yield processes
    processes[-1].kill(signal.SIGTERM)
    assert processes[-1].wait(30.0) == 0
    lab.remove(STATE)
    lab.remove(RUN)


@pytest.mark.long
def test_two_instances_on_one_configuration(private_scene: Scene, second: list[Process]) -> None:
    """Kills, rounds, leftovers and lost states of one instance change nothing of the other's endpoints."""
    scene, lab = private_scene, private_scene.lab
    subnet = scene.subnet()
    configuration = scene.configure(bridge(subnet))
    first = scene.run(scene.network(configuration))
    blue_network = "net-blue"
    scene.adopt_network(blue_network)
    lab.docker(
        *("network", "create", "-d", BLUE, "--ipam-driver", "null", "-o", f"cni.network={configuration}", blue_network)
    )
    blue = scene.run(blue_network)
    wait_reconciled(lab, ADMIN)
    assert _reach_each_other(first, blue)

    for killed in range(2):  # first the second daemon, which has containers of its own; then the first
        if killed:
            lab.restart_daemon(signal.SIGKILL)
        else:
            second[-1].kill(signal.SIGKILL)
            second[-1].wait(30.0)
            second.append(_start(lab))
        for socket in (ADMIN_SOCKET, ADMIN):
            wait_reconciled(lab, socket)
            assert get_objects(ask_status(lab, socket), "pendingTeardowns") == ()
        assert _reach_each_other(first, blue)

    # A link of the second instance that is still in the host namespace, while only the first daemon runs.
    second[-1].kill(signal.SIGKILL)
    second[-1].wait(30.0)
    lab.run("ip", "link", "add", "cnibffffffff", "type", "veth", "peer", "name", "other")
    lab.run("ip", "link", "property", "add", "dev", "cnibffffffff", "altname", f"cni-bridge-{UNKNOWN}")
    lab.run("mkdir", "-p", f"{RUN}/netns")
    lab.write(f"{RUN}/netns/{UNKNOWN}", "")
    lab.run("unshare", "--net", "mount", "--bind", "/proc/self/ns/net", f"{RUN}/netns/{UNKNOWN}")
    wait_reconciled(lab)
    assert lab.run("ip", "link", "show", "cnibffffffff").stdout
    second.append(_start(lab))  # the second one's rounds remove it
    wait_until(lambda: "cnibffffffff" not in lab.run("ip", "link").stdout, "the removal of the leftover", 30)
    assert _reach_each_other(first, blue)

    lab.docker("rm", "-f", blue.name)
    assert reaches(first, subnet.gateway)
    wait_until(lambda: ask_status(lab, ADMIN)["endpoints"] == [], "the teardown", 30)
    lab.docker("network", "rm", blue_network)


def _start(lab: Lab) -> Process:
    process = lab.spawn(*SECOND)
    process.wait_ready(lambda: is_answering(lab.path(SOCKET), "POST", "/Plugin.Activate"), 30.0)
    return process


def _reach_each_other(first: Container, second: Container) -> bool:
    return reaches(first, _address(second)) and reaches(second, _address(first))


def _address(container: Container) -> str:
    return str(next(address.ip for address in container.link("eth0").addresses if address.version == 4))
