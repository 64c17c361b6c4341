# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The first hour of the README works exactly as it is printed, and prints what it says."""

import pytest

from tests.lab import Lab
from tests.pages import README, read_blocks
from tests.system.scene import Scene

FIRST_HOUR = "The first hour"


@pytest.fixture(scope="module")
def shared_lab(default_lab: Lab) -> Lab:
    """The lab of `scene`: a new host, whose daemon has its default settings."""
    return default_lab


def test_the_first_hour(scene: Scene) -> None:
    """The network, two containers that reach each other, a published port, and nothing left."""
    create, use, ask, remove = (block.text for block in read_blocks(README) if block.reason is None)
    made, ping, table = (block.text for block in read_blocks(README, "text", section=FIRST_HOUR))

    assert scene.shell(create).splitlines()[0] == made.splitlines()[0]
    assert ping.splitlines()[0] in scene.shell(use)

    printed = scene.shell(ask).splitlines()
    assert printed[0] == scene.lab.container("web").exec("hostname")
    assert printed[1].split() == table.splitlines()[1].split()
    assert "8080->80/tcp" in printed[2]

    assert scene.shell(remove).splitlines()[0] == "web"
    assert scene.lab.docker("network", "ls", "-q", "--filter", "driver=cni-bridge") == ""
    assert scene.lab.run("ls", "/etc/cni/net.d").stdout == ""
    assert scene.lab.run("ip", "link", "show", "cni-blue", check=False).returncode != 0
