# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The examples in the help of the commands work on a host with the network and the container that they name."""

from collections.abc import Iterator
from typing import Final

import click

from cnm_bridge.operator.cli.command import Command
from cnm_bridge.operator.cli.main import main
from tests.system.scene import Scene

CREATE: Final = "cni-bridge network create blue --subnet 10.22.0.0/16"
ENDLESS: Final = frozenset({"cni-bridge events", "cni-bridge top --watch"})
ELSEWHERE: Final = ("cni-bridge serve", "cni-bridge install-spec")
"""They have tests of their own: a daemon runs already, and Docker keeps what it finds in spec files."""
MAY_FAIL: Final = (
    *("cni-bridge doctor", "cni-bridge gc", "cni-bridge retry", "cni-bridge release", "cni-bridge status"),
    *("cni-bridge state import", "cni-bridge state show 77ad0a1b2c3d", "cni-bridge test"),
    *("cni-bridge network create lan", "cni-bridge network create leased"),
)
"""What these find depends on the host, or they name what does not exist here."""


def commands(command: click.Command) -> Iterator[Command]:
    """Yield a command and all below it."""
    assert isinstance(command, Command)
    yield command
    for further in command.commands.values() if isinstance(command, click.Group) else ():
        yield from commands(further)


def test_the_examples(scene: Scene) -> None:
    """Each ends with an exit status that the help has; what it names exists."""
    exits = {example: command.exits for command in commands(main) for example in command.examples}
    removing = [example for example in exits if example.startswith("cni-bridge network rm")]
    later = (CREATE, *removing, *ENDLESS)
    names = ("blue", "dual", "lan", "leased")
    for name in names:
        scene.adopt_network(name)
    scene.lab.run("mkdir", "-p", "/run/examples")
    scene.shell(CREATE)
    scene.shell("docker run -d --name web --network blue -p 8611:80 busybox sleep 3600")
    looking = [example for example in exits if example not in later and not example.startswith(ELSEWHERE)]
    try:
        for example in (*looking, "docker rm -f web", *sorted(removing, key=len)):
            done = scene.lab.run("sh", "-c", f"cd /run/examples && {example}", check=False)
            assert "Traceback" not in done.stderr
            assert done.returncode in exits.get(example, {0: ""}), f"{example}: {done.returncode} {done.stderr}"
            assert done.returncode == 0 or example.startswith(MAY_FAIL), f"{example}: {done.stdout}{done.stderr}"
    finally:
        scene.lab.run("docker", "rm", "-f", "web", check=False)
        for name in names:
            scene.lab.run("cni-bridge", "network", "rm", "--configuration", name, check=False)
        scene.lab.run("rm", "-r", "/run/examples")
