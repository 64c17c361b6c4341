# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The snapshot, read from the kernel."""

from typing import Final

from cnm_bridge.kernel.addresses import find_addresses
from cnm_bridge.kernel.errors import NotCarriable
from cnm_bridge.kernel.firewall import find_firewall
from cnm_bridge.kernel.links import Link, list_links
from cnm_bridge.kernel.neighbours import find_neighbours
from cnm_bridge.kernel.netlink import Netlink
from cnm_bridge.kernel.qdiscs import find_qdisc
from cnm_bridge.kernel.routes import find_routes
from cnm_bridge.kernel.rules import find_rules
from cnm_bridge.kernel.snapshot import Snapshot
from cnm_bridge.kernel.sysctl import Baseline, changed_settings

__all__ = ["capture"]

_BY_THE_KERNEL: Final = frozenset(
    {"lo", "erspan0", "gre0", "gretap0", "ip6_vti0", "ip6gre0", "ip6tnl0", "ip_vti0", "sit0", "tunl0"}
)
"""Links that a new namespace may have, depending on the modules that are loaded."""


def capture(netlink: Netlink, link: Link, baseline: Baseline, *, reply_limit_s: float) -> Snapshot:
    """Give the snapshot of a link in the conversation's namespace, which is the calling thread's.

    Raises:
        OSError: The kernel refused.
        NotCarriable: There is something that a snapshot cannot hold.
    """
    for other in list_links(netlink):
        if other.index != link.index and other.state.name not in _BY_THE_KERNEL:
            kind = other.state.kind or "physical"
            raise NotCarriable(f"a further link, {other.state.name} ({kind})")
    firewall = find_firewall(reply_limit_s=reply_limit_s) if baseline.observation.firewall else None
    if firewall is not None:
        raise NotCarriable(f"packet filter rules ({firewall})")
    return Snapshot(
        link=link.state,
        addresses=find_addresses(netlink, link),
        routes=find_routes(netlink, link),
        rules=find_rules(netlink),
        neighbours=find_neighbours(netlink, link),
        sysctls=changed_settings(baseline),
        qdisc=find_qdisc(netlink, link),
    )
