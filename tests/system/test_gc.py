# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""GC calls name every existing attachment as valid, and are put off while the inventory is incomplete."""

import json
import time

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str
from tests.lab import Container, Lab
from tests.system.scene import Scene, Subnet, reaches

CALLS = "/run/gc-calls"
WITH_GC = ("--cni-gc", "true", "--reconcile-interval", "1")

NEWER = """
asked=$(tr -d '\\n')
if [ "$CNI_COMMAND" = GC ]; then echo "$asked" >>{calls}; exit 0; fi
answer=$(printf '%s' "$asked" | sed 's/"1\\.1\\.0"/"1.0.0"/g' | /usr/lib/cni/{plugin})
status=$?
case "$asked" in *'"1.1.0"'*) answer=$(printf '%s' "$answer" | sed 's/"1\\.0\\.0"/"1.1.0"/g') ;; esac
printf '%s' "$answer"
exit $status
"""
"""A plugin of CNI 1.1.0 that wraps one of 1.0.0; it records the input of each GC call in a line."""


def configure(scene: Scene, subnet: Subnet) -> str:
    """Make a list whose plugins support GC."""
    for plugin in ("bridge", "host-local", "firewall"):
        scene.plugin(f"new-{plugin}", NEWER.format(plugin=plugin, calls=CALLS), supports=("1.0.0", "1.1.0"))
    ipam: JsonObject = {"type": "new-host-local", "ranges": [[{"subnet": subnet.ipv4}]]}
    main: JsonObject = {"type": "new-bridge", "bridge": subnet.bridge, "isGateway": True, "ipMasq": True, "ipam": ipam}
    name = f"gc{subnet.number}"
    plugins: list[JsonObject] = [main, {"type": "new-firewall"}]
    scene.file(f"{name}.conflist", {"cniVersion": "1.1.0", "name": name, "plugins": plugins})
    return name


def endpoint_of(container: Container, lab: Lab, network: str) -> str:
    """Return the ID of a container's endpoint."""
    return lab.docker(
        "inspect", "-f", f'{{{{(index .NetworkSettings.Networks "{network}").EndpointID}}}}', container.name
    )


def calls(lab: Lab) -> list[set[tuple[str, str]]]:
    """Return the valid attachments of each GC call: container IDs and link names."""
    lines = lab.run("cat", CALLS, check=False).stdout.splitlines()
    return [
        {
            (get_str(one, "containerID"), get_str(one, "ifname"))
            for one in get_objects(json.loads(line), "cni.dev/valid-attachments")
        }
        for line in lines
    ]


def wait_called(lab: Lab, count: int, timeout_s: float = 60) -> list[set[tuple[str, str]]]:
    """Wait until GC was called `count` times."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if len(found := calls(lab)) >= count:
            return found
        time.sleep(0.1)
    pytest.fail(f"GC was called {len(calls(lab))} times, not {count}")


@pytest.mark.impossible("plugin new-bridge is not known to leave its addresses", "hybrid")
def test_the_valid_attachments_of_gc(private_scene: Scene) -> None:
    """Running containers are valid; after the store was lost, no GC runs until their endpoints are rebuilt."""
    lab = private_scene.lab
    subnet = private_scene.subnet()
    network = private_scene.network(configure(private_scene, subnet))
    before = lab.state()
    first = private_scene.run(network)
    valid = {(endpoint_of(first, lab, network), "eth0")}
    lab.stop_daemon()
    lab.start_daemon(*WITH_GC)
    assert wait_called(lab, 2) == [valid] * 2  # by both plugins of the list
    assert reaches(first, subnet.gateway)

    lab.stop_daemon()
    lab.remove(CALLS)
    lab.run("sh", "-c", "rm -r /var/lib/cni-bridge/*")
    lab.start_daemon(*WITH_GC)
    second = private_scene.run(network)  # the first call reveals which engine is Docker's
    valid.add((endpoint_of(second, lab, network), "eth0"))
    assert {frozenset(named) for named in wait_called(lab, 2)} == {frozenset(valid)}
    assert lab.daemon is not None
    log = lab.daemon.log()
    assert "gc.deferred" in log
    assert "endpoint.rebuilt" in log
    assert reaches(first, subnet.gateway)
    lab.docker("rm", "-f", first.name, second.name)
    assert lab.wait_clean(before, timeout_s=20) == ""
    lab.stop_daemon()
    lab.start_daemon()
    lab.remove(CALLS)
