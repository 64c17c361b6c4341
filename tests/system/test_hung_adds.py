# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins whose ADD hangs on one network, more of them than may run at once, delay no start on another."""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cni_bridge_spec import JsonObject, get_object
from cni_invoker import Limits
from tests.lab import wait_until
from tests.system.calls import NETWORK, call, create_network, wait_torn_down
from tests.system.scene import PREV_RESULT, Scene, bridge, reaches

GATE: Final = "/run/gate"
HELD: Final = "/run/held"
SLOTS: Final = Limits().executions

_SCRIPT: Final = f"""
if [ "$CNI_COMMAND" = ADD ] && [ -e {GATE} ]; then
    echo "$CNI_CONTAINERID" >>{HELD}
    while [ -e {GATE} ]; do sleep 0.1; done
fi
exec python3 -c "{PREV_RESULT}"
"""


def test_a_start_on_another_network(scene: Scene) -> None:
    """It completes while all the others wait, and these complete afterwards."""
    lab = scene.lab
    scene.plugin("hanging", _SCRIPT)
    lab.write(HELD, "")
    lab.write(GATE, "")
    create_network(lab, scene.configure([*bridge(scene.subnet()), {"type": "hanging"}]))
    subnet = scene.subnet()
    healthy = scene.network(scene.configure(bridge(subnet)))
    interface: JsonObject = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    references: list[JsonObject] = [
        {"NetworkID": NETWORK, "EndpointID": f"{number:02x}" * 32} for number in range(SLOTS + 2)
    ]
    bodies = [{**reference, "Interface": interface, "Options": {}} for reference in references]
    with ThreadPoolExecutor(len(bodies)) as threads:
        calls = [threads.submit(call, lab, "CreateEndpoint", body) for body in bodies]
        try:
            wait_until(lambda: len(lab.read(HELD).split()) >= SLOTS, f"{SLOTS} ADDs")
            assert reaches(scene.run(healthy), subnet.gateway)
            assert not any(one.done() for one in calls)
        finally:
            lab.remove(GATE)
        assert all(get_object(one.result(), "Interface") for one in calls)
    for reference in references:
        assert call(lab, "DeleteEndpoint", reference) == {}
    wait_torn_down(lab)
    lab.remove(HELD)
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})
