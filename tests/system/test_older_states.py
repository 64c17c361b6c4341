# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The state goes back to one from before a container: its record is made again."""

import pytest

from cni_bridge_spec import JsonObject
from tests.system.scene import Scene, bridge, wait_logged

STATE = "/var/lib/cni-bridge"
COPY = "/run/older-state"


@pytest.mark.long
@pytest.mark.usefixtures("sandbox_before_join")
def test_a_container_whose_partner_stays_in_its_sandbox(private_scene: Scene) -> None:
    """It starts again: Docker lets its endpoint leave, which is rebuilt for that, and deletes it."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    main, *others = bridge(subnet)
    address = subnet.ipv4.replace("0/24", "9")
    only: JsonObject = {"subnet": subnet.ipv4, "rangeStart": address, "rangeEnd": address}
    ipam: JsonObject = {"type": "host-local", "ranges": [[only]]}
    network = private_scene.network(
        private_scene.configure([{**main, "ipam": ipam}, *others]), "-o", "cni.attach=sandbox"
    )
    before = lab.state()
    lab.stop_daemon()
    lab.run("cp", "-a", STATE, COPY)
    lab.start_daemon()
    container = private_scene.run(network)
    partner = private_scene.run(f"container:{container.name}")
    lab.stop_daemon()
    lab.run("sh", "-c", f"rm -r {STATE}/* && cp -a {COPY}/. {STATE}")
    lab.remove(COPY)
    lab.start_daemon()
    lab.docker("kill", container.name)
    lab.docker("start", container.name)
    assert container.name in wait_logged(lab, "endpoint.rebuilt")
    lab.docker("rm", "-f", container.name, partner.name)
    assert lab.wait_clean(before) == ""
