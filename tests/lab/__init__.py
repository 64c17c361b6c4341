# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lab: a complete private Docker host, started in half a second and removed completely at its end.

    with Lab() as lab:
        lab.write("/etc/cni/net.d/10-lan.conflist", {"cniVersion": "1.0.0", "name": "lan", "plugins": […]})
        lab.start_daemon()
        lab.docker("network", "create", "-d", "cni-bridge", "--ipam-driver", "null", "lan")
        lab.docker("run", "-d", "--name", "web", "--network", "lan", "busybox", "sleep", "600")
        assert lab.container("web").link().addresses == lab.container("web").endpoint("lan").addresses

The lab has its own network, process tree, host name and IPC; its own /run, /var/lib/docker, /var/lib/cni, /etc/cni,
/etc/docker and /opt/cni, and our own directories (all empty at first). What it writes below /etc, /opt and /var/lib is
kept in memory, except in the caller's directory. The rest of the file tree is the machine's, including /tmp. The lab
shares with the machine the kernel with its modules, the clock and the tree of control groups, of which it has a branch.

The engine and the plugins are the machine's, or others that were fetched: `Lab(engine=find_engine("28"),
plugins=find_plugins("1.9"))`; see `editions.py`.

A separate process, the keeper, ends the lab when its owner closes it or dies, even by SIGKILL: see `keeper.py`.
On a shell: `python -m tests.lab --help`.
"""

from tests.lab.container import Container, DockerEndpoint, Link
from tests.lab.editions import (
    MAIN_ENGINE,
    Engine,
    NoSuchEdition,
    Plugins,
    find_engine,
    find_plugins,
    known_engines,
    known_plugins,
    machine_engine,
    main_engine,
    with_nftables,
)
from tests.lab.errors import CommandFailed, LabError, MissingPrograms
from tests.lab.lab import ADMIN_SOCKET, DAEMON_COMMAND, PLUGIN_SOCKET, Lab
from tests.lab.leftovers import leftovers, losses
from tests.lab.process import Process
from tests.lab.state import LabState
from tests.lab.waiting import wait_until

__all__ = [
    "ADMIN_SOCKET",
    "DAEMON_COMMAND",
    "MAIN_ENGINE",
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
    "losses",
    "machine_engine",
    "main_engine",
    "wait_until",
    "with_nftables",
]
