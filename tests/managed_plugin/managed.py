# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The managed plugin on a lab: installed as an operator does, and asked for its status."""

from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from tests.lab import Lab
from tests.system.calls import ask_status

BUILT: Final = Path(__file__).parents[2] / "build/plugin"
PLUGIN: Final = "cni"
DRIVER: Final = f"{PLUGIN}:latest"
ADMIN: Final = "/run/cni-bridge-plugin/admin.sock"
LIMIT_S: Final = 300.0
"""Docker packs and unpacks some seventy megabytes, which took more than two minutes on a busy machine."""


def install(lab: Lab, *options: str, plugin: Path = BUILT) -> None:
    """Create the plugin from a directory, and enable it, with further options of the daemon."""
    lab.docker("plugin", "create", PLUGIN, str(plugin), timeout_s=LIMIT_S)
    if options:
        lab.docker("plugin", "set", PLUGIN, f"options={' '.join(options)}")
    enable(lab)


def enable(lab: Lab) -> None:
    """Enable the plugin."""
    lab.docker("plugin", "enable", PLUGIN, timeout_s=LIMIT_S)


def create_network(lab: Lab, name: str) -> None:
    """Create a network of the configuration `lan`."""
    lab.docker("network", "create", "-d", DRIVER, "--ipam-driver", "null", "-o", "cni.network=lan", name)


def daemon_pids(lab: Lab) -> list[str]:
    """Return the process IDs of the plugin's daemon, in the lab."""
    return lab.run("pgrep", "--full", "cni-bridge-plugin", check=False).stdout.split()


def list_on(subnet: str, *, publishes: bool = False) -> JsonObject:
    """Return the network configuration list `lan`, a bridge with a subnet, which may publish ports."""
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": subnet}]]}
    if publishes:  # answers to other hosts need a way
        ipam = {**ipam, "routes": [{"dst": "0.0.0.0/0"}]}
    main: JsonObject = {"type": "bridge", "bridge": "cni-lan", "isGateway": True, "ipMasq": True, "ipam": ipam}
    plugins: list[JsonObject] = [main, {"type": "firewall"}]
    if publishes:
        plugins.append({"type": "portmap", "capabilities": {"portMappings": True}})
    return {"cniVersion": "1.0.0", "name": "lan", "plugins": plugins}


def status(lab: Lab) -> JsonObject:
    """Return the status of the plugin's daemon, from its admin socket on the host."""
    return ask_status(lab, ADMIN)
