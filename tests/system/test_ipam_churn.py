# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Random operations on networks with this IPAM driver, among kills of the daemon and of dockerd.

Each group of operations has every kind. After it the IPAM plugin has exactly the addresses that Docker shows, and in
the end none. The number of operations and the seed can be given: CNI_BRIDGE_OPERATIONS, CNI_BRIDGE_SEED.
"""

import json
import os
import random
import signal
from typing import Final

import pytest

from cni_bridge_spec import get_object, get_objects, get_str
from tests.lab import Lab, LabError, wait_until
from tests.lab.unix_http import request
from tests.system.scene import Scene, bridge
from tests.system.test_ipam import network, own_network, reservations, section, write_section

OPERATIONS: Final = int(os.environ.get("CNI_BRIDGE_OPERATIONS") or 10)
SEED: Final = int(os.environ.get("CNI_BRIDGE_SEED") or random.SystemRandom().randrange(10**6))
GROUP: Final = (*("run",) * 4, *("rm",) * 2, "restart", "connect", "kill daemon", "kill dockerd")
MOST: Final = 8
LIMIT_S: Final = 90.0


def shown_addresses(lab: Lab, networks: list[str]) -> list[str]:
    """Return the addresses of endpoints that Docker shows on some networks, sorted."""
    found: list[str] = []
    for document in json.loads(lab.docker("network", "inspect", *networks)):
        containers = get_object(document, "Containers")
        found += [get_str(get_object(containers, key), "IPv4Address").partition("/")[0] for key in containers]
    return sorted(found)


def is_settled(lab: Lab) -> bool:
    """Return whether no address is being requested or released."""
    _, document = request(lab.path("/run/cni-bridge/admin.sock"), "GET", "/v1/addresses")
    assert isinstance(document, dict)
    return all(get_str(one, "phase") == "reserved" for one in get_objects(document, "addresses"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_random_operations(private_scene: Scene) -> None:
    """Docker's bridge, its macvlan and a network of this driver: nothing is lost, given twice, or left behind."""
    chance = random.Random(SEED)  # noqa: S311 - it must be repeatable, not secret
    print(f"to repeat: CNI_BRIDGE_OPERATIONS={OPERATIONS} CNI_BRIDGE_SEED={SEED}")  # noqa: T201
    scene, lab = private_scene, private_scene.lab
    lab.stop_daemon()
    lab.start_daemon("--reconcile-interval", "2", "--plugin-timeout", "4")
    subnets = [scene.subnet() for _ in range(3)]
    names = [write_section(scene, section(subnet)) for subnet in subnets]
    networks = [
        network(scene, names[0]),
        network(scene, names[1], driver="macvlan"),
        own_network(scene, scene.configure(bridge(subnets[2])), names[2]),
    ]
    containers: list[str] = []
    for _ in range(0, OPERATIONS, len(GROUP)):
        for kind in chance.sample(GROUP, len(GROUP)):
            _operate(scene, kind, chance, networks, containers)
        for name, made in zip(names, networks, strict=True):
            wait_until(
                lambda name=name, made=made: (  # type: ignore[misc]
                    is_settled(lab) and reservations(lab, name) == shown_addresses(lab, [made])
                ),
                f"{made} is as Docker shows it",
                timeout_s=LIMIT_S,
            )
    for name in containers:
        lab.docker("rm", "-f", name)
    for name in names:
        wait_until(lambda name=name: not reservations(lab, name), f"{name} is empty", timeout_s=LIMIT_S)  # type: ignore[misc]


def _operate(scene: Scene, kind: str, chance: random.Random, networks: list[str], containers: list[str]) -> None:
    """Make one operation; what fails because something was killed is no error."""
    lab = scene.lab
    try:
        if kind == "kill daemon":
            lab.restart_daemon(signal.SIGKILL)
        elif kind == "kill dockerd":
            lab.restart_dockerd(signal.SIGKILL)
        elif kind == "run" or not containers:
            if len(containers) < MOST:
                containers.append(scene.run(chance.choice(networks)).name)
        elif kind == "rm":
            lab.docker("rm", "-f", containers.pop(chance.randrange(len(containers))))
        elif kind == "restart":
            lab.docker("restart", "-t", "0", chance.choice(containers))
        else:
            lab.docker("network", "connect", chance.choice(networks), chance.choice(containers))
    except LabError:
        if kind.startswith("kill"):
            raise
