# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads a snapshot from the kernel."""

from cnm_bridge.core.link_state import Snapshot
from cnm_bridge.system.kernel.capture.unsupported import refuse_further_links, refuse_uncarriable
from cnm_bridge.system.kernel.netlink.addresses import find_addresses
from cnm_bridge.system.kernel.netlink.links import Link, list_links
from cnm_bridge.system.kernel.netlink.neighbours import find_neighbours
from cnm_bridge.system.kernel.netlink.qdiscs import find_qdisc
from cnm_bridge.system.kernel.netlink.routes import find_routes
from cnm_bridge.system.kernel.netlink.rules import find_rules
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.sysctl import Baseline, changed_settings

__all__ = ["capture"]


def capture(netlink: Netlink, link: Link, baseline: Baseline, *, reply_limit_s: float) -> Snapshot:
    """Return the snapshot of a link; the calling thread and the netlink socket must be in its namespace.

    Raises:
        OSError: The kernel refused.
        NotCarriable: The namespace has something that a snapshot cannot hold.
    """
    refuse_further_links(list_links(netlink), link)
    if baseline.observation.thorough:
        refuse_uncarriable(netlink, link, reply_limit_s=reply_limit_s)
    return Snapshot(
        link=link.state,
        addresses=find_addresses(netlink, link),
        routes=find_routes(netlink, link),
        rules=find_rules(netlink),
        neighbours=find_neighbours(netlink, link),
        sysctls=changed_settings(baseline),
        qdisc=find_qdisc(netlink, link.index),
    )
