# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.renewals`: a lease of two minutes, renewed after restarts in every order; takes ten minutes."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Final

from cni_bridge_spec import JsonObject
from tests.lab import Container, Lab, find_engine, find_plugins
from tests.system.dhcp_lan import Lan
from tests.system.scene import Scene, reaches

_RENEWAL_S: Final = 150.0
"""The lease time, and half a minute for a busy machine: a renewal that has not come by then is lost."""


def main(arguments: Sequence[str]) -> int:
    """Restart in every order, wait for the next renewal each time, and report what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.renewals", description=__doc__)
    parser.add_argument("--engine", default="28.5", help="default: %(default)s")
    parser.add_argument("--plugins", help="CNI plugins other than the machine's, e.g. 1.9")
    options = parser.parse_args(arguments)
    engine, plugins = find_engine(options.engine), find_plugins(options.plugins) if options.plugins else None
    with Lab(dockerd=False, engine=engine, plugins=plugins) as lab:
        lab.start_dockerd("--live-restore")
        lab.import_image()
        lab.start_daemon()
        with Scene(lab) as scene:
            return _play(scene)


def _play(scene: Scene) -> int:
    lab, lan = scene.lab, Lan(scene.lab, scene.subnet())
    restarts: dict[str, Callable[[], object]] = {
        "dockerd": lab.restart_dockerd,
        "cni-bridge": lambda: lab.restart_daemon(signal.SIGKILL),
        "dhcp daemon": lan.restart_daemon,
    }
    failures = 0
    try:
        lan.start_daemon()
        lan.start_server(lease="2m")
        main: JsonObject = {"type": "macvlan", "master": Scene.UPLINK, "mode": "bridge", "ipam": {"type": "dhcp"}}
        container = scene.run(scene.network(scene.configure([main]), "-o", "cni.attach=sandbox"))
        address = _address(container)
        for order in permutations(restarts):
            acknowledged = lan.count("DHCPACK")
            for name in order:
                restarts[name]()
            # one for the successor of the DHCP daemon, and one for its renewal
            lan.wait_logged("DHCPACK(", count=acknowledged + 2, timeout_s=_RENEWAL_S)
            is_fine = (
                _address(container) == address and lan.leases() == [address] and reaches(container, lan.subnet.gateway)
            )
            failures += not is_fine
            print(f"{' → '.join(order)}: {'renewed' if is_fine else 'LOST'}", flush=True)
    finally:
        lan.close()
    return 1 if failures else 0


def _address(container: Container) -> str:
    (found,) = container.link().addresses
    return str(found.ip)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
