# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The state directory's disk is full at any step of an operation: Docker receives an error, nothing is half done."""

import json
import signal
import sys
from collections.abc import Iterator

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str
from tests.lab import Lab, wait_until
from tests.system.calls import ask_status
from tests.system.scene import Scene, reaches

STATE = "/var/lib/cni-bridge"
PAGE_BYTES = 4096
LIMIT_S = 20.0


@pytest.fixture
def full_disk_scene(private_scene: Scene) -> Iterator[Scene]:
    """A scene whose daemon has its state directory on a file system of its own, of 1 MiB."""
    lab = private_scene.lab
    lab.stop_daemon()
    lab.run("mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", STATE)
    lab.start_daemon()
    try:
        yield private_scene
    finally:
        free(lab)


def fill(lab: Lab, *, but_pages: int = 0) -> None:
    """Use up all space except some pages; the rest of the log's last page stays writable."""
    script = f"""
        dd if=/dev/zero of={STATE}/filling bs={PAGE_BYTES} 2>/dev/null
        truncate -s -{but_pages * PAGE_BYTES} {STATE}/filling
    """
    lab.run("sh", "-c", script)


def free(lab: Lab) -> None:
    """Free the space that `fill` used."""
    lab.remove(f"{STATE}/filling")


def log_events(lab: Lab) -> list[JsonObject]:
    """Return what the daemon has logged."""
    assert lab.daemon is not None
    return [json.loads(line) for line in lab.daemon.log().splitlines() if line.startswith("{")]


def wait_for_teardowns(lab: Lab) -> None:
    """Wait until no teardown is pending, tried or not."""

    def is_pending() -> bool:
        status = ask_status(lab)
        return bool(status["untriedTeardowns"] or status["pendingTeardowns"])

    wait_until(lambda: not is_pending(), "the end of the teardowns", LIMIT_S)


def stored_endpoints(lab: Lab) -> list[str]:
    """Return the IDs of the endpoints of `cni-bridge state export`; the daemon must be stopped."""
    exported = lab.run(sys.executable, "-m", "cnm_bridge", "state", "export").stdout
    return [get_str(endpoint, "id") for endpoint in get_objects(json.loads(exported), "endpoints")]


@pytest.mark.long
@pytest.mark.parametrize("restart", [False, True], ids=["keeps running", "killed"])
def test_at_every_write_of_a_container(full_disk_scene: Scene, *, restart: bool) -> None:
    """A container starts, or Docker receives the error and everything is undone while the disk is still full."""
    lab = full_disk_scene.lab
    network, subnet = full_disk_scene.bridge_network(ipv6=True)
    full_disk_scene.run(network)
    before = lab.state()
    failed: set[str] = set()
    for number in range(7 if restart else 10):
        fill(lab, but_pages=number % 5)
        done = lab.run("docker", "run", "-d", "--name", "box", "--net", network, "busybox", "sleep", "99", check=False)
        if done.returncode == 0:
            assert reaches(lab.container("box"), subnet.gateway)
        else:
            assert f"cannot write the state in {STATE}" in done.stderr
            assert "No space left" in done.stderr
        lab.docker("rm", "-f", "box")
        assert lab.wait_clean(before) == "", f"{number}: {done.stderr}"
        if restart:
            lab.stop_daemon(signal.SIGKILL)
        failed |= {str(event["rpc"]) for event in log_events(lab) if event["event"] == "rpc.refused"}
        free(lab)
        if restart:
            lab.start_daemon()
        else:
            wait_for_teardowns(lab)
        lab.docker("run", "--rm", "--net", network, "busybox", "true")
        assert lab.wait_clean(before) == ""
    assert "NetworkDriver.CreateEndpoint" in failed
    if not restart:
        # A daemon that is killed before there is space leaves the records of what it has undone; reconcile removes them
        # when it asks the engine.
        lab.stop_daemon()
        assert len(stored_endpoints(lab)) == 1
        lab.start_daemon()
