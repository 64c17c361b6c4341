# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a local user without any right has in a network namespace changes nothing for containers."""

import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from ipaddress import ip_network
from secrets import token_hex
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Lab, wait_until
from tests.system.scene import Scene, Subnet, bridge, reaches

USER: Final = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
NAMESPACE: Final = ("unshare", "--user", "--map-root-user", "--net", "sh", "-euc")
_UP: Final = "/tmp/stranger-is-up"
_STAY: Final = f"touch {_UP}; exec sleep 3600"
_LINKS: Final = 600
"""So many links that the kernel needs several messages to list them, and notices changes in between."""


class Stranger(StrEnum):
    """What the namespace contains."""

    ODD_NAMES = "names that are not UTF-8"
    FORGED = "alternative names like ours, and addresses of our pool"
    PASSING = "links that come and go"


@contextmanager
def beside(lab: Lab, what: Stranger, *, attachments: Iterable[str], addresses: Iterable[str]) -> Iterator[None]:
    """Let a stranger live on the host for the length of the block.

    Args:
        lab: The host.
        what: What the stranger does.
        attachments: The IDs that are forged; any user can read those of mounts in `/proc/self/mountinfo`.
        addresses: The addresses that the stranger's link has.
    """
    process = lab.spawn(*USER, *NAMESPACE, _script(what, attachments, addresses))
    try:
        wait_until(lambda: lab.path(_UP).exists(), "the stranger's namespace")
        yield
    finally:
        process.close()
        lab.remove(_UP)


def _script(what: Stranger, attachments: Iterable[str], addresses: Iterable[str]) -> str:
    """Return what is executed in the namespace."""
    match what:
        case Stranger.ODD_NAMES:
            name = r'"$(printf "\377\376x")"'
            return (
                f"ip link add {name} type veth peer name peer; ip link property add dev {name} altname {name}y; {_STAY}"
            )
        case Stranger.FORGED:
            lines = ["link add forged type veth peer name peer", "link set forged up"]
            lines += [f"link property add dev forged altname cni-bridge-{one}" for one in attachments]
            lines += [f"address add {one} dev forged" for one in addresses]
            return f"printf '%s\\n' {shlex.join(lines)} | ip -batch -; {_STAY}"
        case Stranger.PASSING:
            stay = f"for i in $(seq {_LINKS}); do echo link add stays$i type veth peer name peer$i; done | ip -batch -"
            passing = 'yes "link add pass$i type veth peer name peer$i\nlink delete pass$i" | ip -batch -'
            return f"{stay}; for i in a b c d; do {passing} & done; {_STAY}"


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
