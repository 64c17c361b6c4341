# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin that the kernel kills for memory, in the control group of the unit: the daemon undoes it and goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.lab import Lab, losses
from tests.lab.systemd import Systemd
from tests.system.scene import PASS, Scene, bridge, reaches

SERVICE, SOCKET = "cni-bridge.service", "cni-bridge.socket"
ROOM_BYTES: Final = 128 << 20
"""What daemon and plugins may use from then on, beyond what the daemon has already.

It is more than the daemon itself has: the kernel kills the largest program, and the lab's systemd does not apply
`OOMScoreAdjust` of the unit.
"""
_V1: Final = Path("/sys/fs/cgroup/memory")
_GREEDY: Final = """case $CNI_COMMAND in
ADD) [ ! -e /run/greedy ] || exec busybox tail /dev/zero ;;
esac
"""


@pytest.fixture(name="unit_lab")
def make_unit_lab() -> Iterator[Lab]:
    """A Docker host whose daemon was started by systemd."""
    if not (_V1 / "memory.limit_in_bytes").exists():
        pytest.skip("this machine has no control groups of version 1 for memory")
    with Lab(dockerd=False) as lab:
        systemd = Systemd(lab)
        systemd.control("start", SOCKET, SERVICE)
        lab.start_dockerd()
        lab.import_image()
        yield lab
        lab.stop_dockerd()
        systemd.control("stop", SERVICE, SOCKET)


@pytest.mark.long
def test_a_plugin_is_killed_for_memory(unit_lab: Lab) -> None:
    """The error names it, what was made is undone, the same daemon goes on, and a container keeps its network."""
    group = _V1 / unit_lab.namespaces.name / "service"
    daemon = main_pid(unit_lab)
    files = {"memory.limit_in_bytes": str(ROOM_BYTES), "cgroup.procs": daemon}
    unit_lab.run("mkdir", "-p", str(group))
    for name, value in files.items():
        unit_lab.run("sh", "-c", f"echo {value} >{group}/{name}")
    with Scene(unit_lab) as scene:
        scene.plugin("greedy", _GREEDY + PASS)
        subnet = scene.subnet()
        network = scene.network(scene.configure([*bridge(subnet), {"type": "greedy"}]))
        neighbour = scene.run(network)
        before = unit_lab.state()
        unit_lab.write("/run/greedy", "")
        error = scene.run_refusal(network)
        assert '"greedy"' in error
        assert "kill" in error.lower()
        assert "oom_kill 1" in unit_lab.read(f"{group}/memory.oom_control")
        unit_lab.remove("/run/greedy")
        assert unit_lab.wait_clean(before) == ""
        assert losses(before, unit_lab.state()) == ""
        assert main_pid(unit_lab) == daemon
        assert reaches(neighbour, subnet.gateway)
        scene.run(network)


def main_pid(lab: Lab) -> str:
    """Return the ID of the daemon's process."""
    return lab.run("systemctl", "show", "--value", "--property=MainPID", SERVICE).stdout.strip()
