# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lab: a complete private Docker host in half a second, of which nothing is left when it ends.

    with Lab() as lab:
        lab.write("/etc/cni/net.d/10-lan.conflist", {"cniVersion": "1.0.0", "name": "lan", "plugins": […]})
        lab.start_daemon()
        lab.docker("network", "create", "-d", "cni-bridge", "--ipam-driver", "null", "lan")
        lab.docker("run", "-d", "--name", "web", "--network", "lan", "busybox", "sleep", "600")
        assert lab.container("web").link().addresses == lab.container("web").endpoint("lan").addresses

Private are: the network, the process tree, the host name, IPC; /run, /var/lib/docker, /var/lib/cni, /etc/cni,
/etc/docker, our own directories, /opt/cni (all empty at first); and what is written below /etc, /opt and /var/lib
(copies in memory, except the caller's directory). The rest of the file tree is the machine's, /tmp too. Shared with the
machine is the kernel with its modules, the clock and the tree of control groups, of which a lab has a branch.

The engine and the plugins are the machine's, or others that were fetched: `Lab(engine=find_engine("28"),
plugins=find_plugins("1.9"))`; see `editions.py`.

A process of its own, the keeper, ends the lab when its owner lets go or dies, even by SIGKILL: see `keeper.py`.
On a shell: `python -m tests.lab --help`.
"""

from tests.lab.container import Container, DockerEndpoint, Link
from tests.lab.editions import (
    Engine,
    NoSuchEdition,
    Plugins,
    find_engine,
    find_plugins,
    known_engines,
    known_plugins,
    machine_engine,
)
from tests.lab.errors import CommandFailed, LabError, MissingPrograms
from tests.lab.lab import DAEMON_COMMAND, PLUGIN_SOCKET, Lab
from tests.lab.leftovers import leftovers
from tests.lab.process import Process
from tests.lab.state import LabState
from tests.lab.waiting import wait_until

__all__ = [
    "DAEMON_COMMAND",
    "PLUGIN_SOCKET",
    "CommandFailed",
    "Container",
    "DockerEndpoint",
    "Engine",
    "Lab",
    "LabError",
    "LabState",
    "Link",
    "MissingPrograms",
    "NoSuchEdition",
    "Plugins",
    "Process",
    "find_engine",
    "find_plugins",
    "known_engines",
    "known_plugins",
    "leftovers",
    "machine_engine",
    "wait_until",
]
