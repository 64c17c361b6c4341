# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge test` on a real engine: every step, a planted fault, and nothing left behind."""

import json
import signal
import sys
import time

import pytest

from tests.lab import Lab, wait_until
from tests.system.plugin_lists import PORTMAP
from tests.system.scene import Scene, bridge

TEST = (sys.executable, "-m", "cnm_bridge", "test")


def steps(output: str) -> dict[str, str]:
    """Return the results by step."""
    return {one["step"]: one["result"] for one in json.loads(output)}


def containers(lab: Lab) -> list[str]:
    """Return the names of the test's containers."""
    return lab.docker("ps", "--all", "--filter", "name=cni-bridge-test", "--format", "{{.Names}}").split()


def test_a_network_that_works(scene: Scene) -> None:
    """Every step passes, with both families; nothing is left, not even the image."""
    lab = scene.lab
    before, images = lab.state(), lab.docker("images", "--quiet", "--no-trunc")
    network = scene.network(scene.configure((*bridge(scene.subnet(), ipv6=True), PORTMAP)))
    lab.run("ip", "addr", "add", "198.51.100.1/32", "dev", scene.UPLINK)
    done = lab.run(*TEST, "--json", "--outside", "198.51.100.1", network, check=False)
    assert steps(done.stdout) == dict.fromkeys(
        ("start", "addresses", "peer", "gateway", "outside", "names", "port", "mtu", "cleanup"), "passed"
    ), done.stdout
    assert done.returncode == 0
    assert containers(lab) == []
    assert lab.docker("images", "--quiet", "--no-trunc") == images
    lab.docker("network", "rm", network)
    wait_until(lambda: set(lab.state().reservations) <= set(before.reservations), "the teardowns")


@pytest.mark.long
def test_a_planted_fault(scene: Scene) -> None:
    """The host drops pings: the step is named, with what to look at, and the other steps follow."""
    lab, subnet = scene.lab, scene.subnet()
    network = scene.network(scene.configure(bridge(subnet)))
    rule = ("INPUT", "-i", subnet.bridge, "-p", "icmp", "-j", "DROP")
    lab.run("iptables", "-I", *rule)
    try:
        done = lab.run(*TEST, network, check=False)
    finally:
        lab.run("iptables", "-D", *rule)
    assert done.returncode == 1
    lines, _, hints = done.stdout.partition("\n\n")
    rows = {step: outcome for outcome, step, *_ in map(str.split, lines.splitlines())}
    assert (rows["peer"], rows["gateway"], rows["cleanup"]) == ("passed", "failed", "passed")
    assert rows["port"] == "skipped"
    assert hints.startswith("gateway failed; look at")
    assert containers(lab) == []


def test_a_start_that_fails(scene: Scene) -> None:
    """The plugin's own message is shown, and both containers are removed."""
    scene.plugin(
        "failing", """[ "$CNI_COMMAND" = ADD ] && { echo '{"code": 99, "msg": "not today"}'; exit 1; }; exit 0"""
    )
    network = scene.network(scene.configure((*bridge(scene.subnet()), {"type": "failing"}), cni_version="0.4.0"))
    start, cleanup = json.loads(scene.lab.run(*TEST, "--json", network, check=False).stdout)
    assert (start["step"], start["result"], cleanup["step"], cleanup["result"]) == (
        *("start", "failed"),
        *("cleanup", "passed"),
    )
    assert "not today" in start["detail"]
    assert containers(scene.lab) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.representatives("2")
def test_an_interrupted_test_cleans_up(scene: Scene, number: signal.Signals) -> None:
    """Ctrl-C, or a terminal that is closed, while the containers run."""
    network, _ = scene.bridge_network()
    # A job in the background ignores SIGINT, one of nohup SIGHUP, and so would all that they start.
    running = scene.lab.spawn("env", "--default-signal=INT,HUP", *TEST, network)
    wait_until(lambda: len(containers(scene.lab)) > 0, "a container of the test")
    running.kill(number)
    assert running.wait(60.0) == 1
    assert containers(scene.lab) == []
    assert "cleanup" in running.tail()


def test_no_daemon(private_scene: Scene) -> None:
    """The command says so at once, where Docker would look for the driver for 15 s."""
    scene = private_scene
    network = scene.network(scene.configure(bridge(scene.subnet())))
    scene.lab.stop_daemon()
    began_s = time.monotonic()
    done = scene.lab.run(*TEST, network, check=False)
    assert time.monotonic() - began_s < 10.0
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("cni-bridge: no daemon runs, so no container would start; start it: ")
    scene.lab.start_daemon()


def test_an_unknown_network(scene: Scene) -> None:
    """The nearest one is suggested, and nothing is made."""
    network, _ = scene.bridge_network()
    done = scene.lab.run(*TEST, f"{network}x", check=False)
    assert done.returncode == 2
    assert f"did you mean {network}?" in done.stderr
    assert "did you mean" not in scene.lab.run(*TEST, "nope", check=False).stderr  # such as none
