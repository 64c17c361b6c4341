# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a local user without any right has in a network namespace changes nothing for containers."""

import signal
import sys
from ipaddress import ip_network
from secrets import token_hex

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Lab
from tests.system.calls import wait_reconciled
from tests.system.scene import Scene, Subnet, bridge, reaches
from tests.system.strangers import Stranger, beside

OFTEN = ("--reconcile-interval", "1")


def attachments(lab: Lab) -> list[str]:
    """Return the IDs of all attachments, as a stranger sees them among the mounts, and one that none has."""
    found = lab.run(
        "sh", "-c", "ls /run/cni-bridge/netns /run/cni-bridge/sandboxes 2>/dev/null | grep -E '^[0-9a-f]{64}$'"
    )
    return sorted({*found.stdout.split(), token_hex(32)})


def pool(subnet: Subnet, size: int) -> list[str]:
    """Return the first addresses of a subnet that containers receive, with their prefix."""
    network = ip_network(subnet.ipv4)
    return [f"{network[2 + number]}/{network.prefixlen}" for number in range(size)]


def assert_untroubled(lab: Lab) -> None:
    """No bug, nothing pending, no warning about what the stranger has."""
    assert lab.daemon is not None
    log = lab.daemon.log()
    for event in (".bug", "internal error", "endpoint.in_use", "kernel_unread", "namespaces_unread", "Traceback"):
        assert event not in log, next(line for line in log.splitlines() if event in line)
    assert "PENDING" not in lab.run(sys.executable, "-m", "cnm_bridge", "status", "--wait", "20").stdout


@pytest.mark.parametrize("what", Stranger)
@pytest.mark.representatives("alternative names like ours, and addresses of our pool")
def test_a_container_is_restarted_after_the_daemon(private_scene: Scene, what: Stranger) -> None:
    """It keeps its given address and its published port; `docker rm` removes its rules, those of `firewall` too."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    portmap: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}
    configuration = private_scene.configure([*bridge(subnet), portmap])
    network = private_scene.docker_network(configuration, "--subnet", subnet.ipv4)
    before = lab.state()
    address = subnet.ipv4.replace("0/24", "9")
    container = private_scene.run(network, "--ip", address, "-p", "8080:80")
    other = private_scene.run(network)
    with beside(lab, what, attachments=attachments(lab), addresses={f"{address}/24", *pool(subnet, 20)}):
        lab.restart_daemon()
        for name in (container.name, other.name):
            lab.docker("restart", "-t", "0", name)
            assert reaches(lab.container(name), subnet.gateway)
        assert address in lab.docker("inspect", container.name)
        third = private_scene.run(network)
        assert_untroubled(lab)
        lab.docker("rm", "-f", container.name, other.name, third.name)
        assert lab.wait_clean(before) == ""
        assert_untroubled(lab)


@pytest.mark.long
@pytest.mark.parametrize("what", Stranger)
def test_a_small_pool_after_a_crash_of_docker(private_scene: Scene, what: Stranger) -> None:
    """What the containers had that died with Docker is free again, for their next start and for the next one."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    main, *others = bridge(subnet)
    first, last = (one.partition("/")[0] for one in (pool(subnet, 2)[0], pool(subnet, 2)[-1]))
    ranges: JsonObject = {"subnet": subnet.ipv4, "rangeStart": first, "rangeEnd": last}
    ipam: JsonObject = {"type": "host-local", "ranges": [[ranges]]}
    network = private_scene.network(private_scene.configure([{**main, "ipam": ipam}, *others]))
    before = lab.state()
    names = [private_scene.run(network).name for _ in range(2)]
    with beside(lab, what, attachments=attachments(lab), addresses=pool(subnet, 2)):
        lab.restart_dockerd(signal.SIGKILL)
        for name in names:
            lab.docker("start", name)
            assert reaches(lab.container(name), subnet.gateway)
        lab.stop_daemon(signal.SIGKILL)
        lab.start_daemon(*OFTEN)
        wait_reconciled(lab)
        assert_untroubled(lab)
        lab.docker("rm", "-f", *names)
        assert lab.wait_clean(before) == ""
    lab.restart_daemon()
