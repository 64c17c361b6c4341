# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins that hang, as many as may run at once, delay no call that does not need what they hold.

The daemon's log proves that such a call returned before any of these plugins ended: none has been killed.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_object
from cni_invoker import Limits
from tests.lab import Lab, wait_until
from tests.system.calls import NETWORK, call, create_endpoint, create_network, wait_torn_down
from tests.system.plugin_lists import PORTMAP
from tests.system.scene import PREV_RESULT, Scene, bridge, reaches

GATE: Final = "/run/gate"
HELD: Final = "/run/held"
HANGING: Final[JsonObject] = {"type": "hanging"}
SLOTS: Final = Limits().executions
REFERENCES: Final[list[JsonObject]] = [
    {"NetworkID": NETWORK, "EndpointID": f"{number:02x}" * 32} for number in range(SLOTS + 2)
]

_PASS: Final = f'exec python3 -c "{PREV_RESULT}"'
_SCRIPT: Final = f"""
if [ "$CNI_COMMAND" = "$(cat {GATE} 2>/dev/null)" ]; then
    echo "$CNI_CONTAINERID" >>{HELD}
    while [ -e {GATE} ]; do sleep 0.1; done
fi
{_PASS}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """A scene with the plugin `hanging`, whose DEL waits while the gate, a file with the verb, exists.

    Attributes:
        scene: The scene.
        logged: The length of the daemon's log at the start of the test.
    """

    scene: Scene
    logged: int

    @property
    def log(self) -> str:
        """What the daemon has logged since the start of the test."""
        return _log(self.scene.lab)[self.logged :]

    def wait_held(self, count: int) -> None:
        """Wait until `count` of the plugins hang."""
        wait_until(lambda: len(_held(self.scene.lab)) >= count, f"{count} that hang")

    def assert_none_ended(self) -> None:
        """Assert that no hanging DEL has reached its time limit yet."""
        assert "and was killed (" not in self.log


@pytest.fixture
def hanging(scene: Scene) -> Iterator[Hanging]:
    """A scene with the plugin, and the gate closed."""
    lab = scene.lab
    scene.plugin("hanging", _SCRIPT)
    lab.write(HELD, "")
    lab.write(GATE, "DEL")
    yield Hanging(scene=scene, logged=len(_log(lab)))
    lab.remove(GATE)
    wait_torn_down(lab)
    lab.remove(HELD)


@pytest.fixture
def all_slots(hanging: Hanging) -> Iterator[Hanging]:
    """A network whose hanging DELs fill all slots, with two more that wait for one."""
    scene = hanging.scene
    create_network(scene.lab, scene.configure([*bridge(scene.subnet()), HANGING]))
    for reference in REFERENCES:
        assert get_object(create_endpoint(scene.lab, reference), "Interface")
    for reference in REFERENCES:
        assert call(scene.lab, "DeleteEndpoint", reference) == {}
    hanging.wait_held(SLOTS)
    yield hanging
    scene.lab.remove(GATE)
    wait_torn_down(scene.lab)
    call(scene.lab, "DeleteNetwork", {"NetworkID": NETWORK})


def test_a_start_with_ports(all_slots: Hanging) -> None:
    """A container on another network starts and publishes its ports, which begins with a DEL."""
    scene = all_slots.scene
    subnet = scene.subnet()
    container = scene.run(scene.network(scene.configure([*bridge(subnet), PORTMAP])), "-p", "8411:80")
    assert reaches(container, subnet.gateway)
    assert "--dport 8411" in scene.lab.run("iptables", "-t", "nat", "-S").stdout
    all_slots.assert_none_ended()


def _log(lab: Lab) -> str:
    assert lab.daemon is not None
    return lab.daemon.log()


def _held(lab: Lab) -> list[str]:
    """Return the endpoints whose DEL hangs."""
    return lab.read(HELD).split()


def test_a_start_on_another_network(hanging: Hanging) -> None:
    """It completes while more ADDs than may run at once wait, and these complete afterwards."""
    scene, lab = hanging.scene, hanging.scene.lab
    lab.write(GATE, "ADD")
    create_network(lab, scene.configure([*bridge(scene.subnet()), HANGING]))
    subnet = scene.subnet()
    healthy = scene.network(scene.configure(bridge(subnet)))
    with ThreadPoolExecutor(len(REFERENCES)) as threads:
        calls = [threads.submit(create_endpoint, lab, reference) for reference in REFERENCES]
        try:
            hanging.wait_held(SLOTS)
            assert reaches(scene.run(healthy), subnet.gateway)
            assert not any(one.done() for one in calls)
        finally:
            lab.remove(GATE)
        assert all(get_object(one.result(), "Interface") for one in calls)
    for reference in REFERENCES:
        assert call(lab, "DeleteEndpoint", reference) == {}
    wait_torn_down(lab)
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})
