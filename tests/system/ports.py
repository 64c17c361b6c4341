# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks that publish ports, and which ports the daemon has published."""

import re
from collections.abc import Sequence

from cni_bridge_spec import JsonObject
from tests.system.plugin_lists import PORTMAP
from tests.system.scene import Scene, Subnet, bridge


def with_ports(subnet: Subnet, *, ipv6: bool = False) -> Sequence[JsonObject]:
    """Return a bridge that publishes ports."""
    return (*bridge(subnet, ipv6=ipv6), PORTMAP)


def port_network(scene: Scene, *, ipv6: bool = False, name: str | None = None) -> tuple[str, Subnet]:
    """Make a network that publishes ports."""
    subnet = scene.subnet()
    return scene.network(scene.configure(with_ports(subnet, ipv6=ipv6)), name=name), subnet


def published(scene: Scene) -> list[str]:
    """Return what was published last according to the daemon's log, e.g. `8080->80/tcp`."""
    assert scene.lab.daemon is not None
    lines = [line for line in scene.lab.daemon.tail(2000).splitlines() if "endpoint.published" in line]
    return re.findall(r"[\d.:\[\]a-f]+->\d+/[a-z]+", lines[-1])
