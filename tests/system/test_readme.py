# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The commands of the README work exactly as they are printed, and print what it says."""

import re
from collections.abc import Sequence

import pytest

from tests.lab import Lab
from tests.pages import README, read_blocks
from tests.system.scene import Scene

THREE_COMMANDS = "Three commands"
REST = "And then"


@pytest.fixture(scope="module")
def shared_lab(default_lab: Lab) -> Lab:
    """The lab of `scene`: a new host, whose daemon has its default settings."""
    return default_lab


def test_the_commands(scene: Scene) -> None:
    """The network, two containers that reach each other, a published port, and nothing left."""
    create, run, reach = read(THREE_COMMANDS)
    made, reached = (block.text.splitlines() for block in read_blocks(README, "text", section=THREE_COMMANDS))
    ask, remove = read(REST)
    (table,) = (block.text.splitlines() for block in read_blocks(README, "text", section=REST))

    assert scene.shell(create).splitlines()[0] == made[0]
    scene.shell(run)
    printed = scene.shell(reach).splitlines()
    assert [is_similar(*lines) for lines in zip(printed, reached, strict=True)] == [True] * len(reached)
    assert printed[-1] == scene.lab.container("web").exec("hostname")

    shown = scene.shell(ask).splitlines()
    assert shown[0].split() == table[0].split()
    assert "8080->80/tcp" in shown[1]

    assert scene.shell(remove).splitlines()[0] == "web"
    assert scene.lab.docker("network", "ls", "-q", "--filter", "driver=cni-bridge") == ""
    assert scene.lab.run("ls", "/etc/cni/net.d").stdout == ""
    assert scene.lab.run("ip", "link", "show", "cni-blue", check=False).returncode != 0


def read(section: str) -> Sequence[str]:
    """Return the blocks of a section that are run."""
    return [block.text for block in read_blocks(README, section=section) if block.reason is None]


def is_similar(printed: str, promised: str) -> bool:
    """Return whether two lines differ in times and IDs only."""
    varying = re.compile(r"[0-9a-f]{12}|\d+\.\d+(/\d+\.\d+)* ms")
    return varying.sub("", printed) == varying.sub("", promised)
