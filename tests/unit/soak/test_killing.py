# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which links a killed dockerd has left in the host namespace."""

import json

from tests.soak.killing import find_stray_links
from tests.soak.lists import DOCKERS_BRIDGE

LINKS = (
    {"ifname": "veth1", "master": DOCKERS_BRIDGE, "link": "veth2", "linkinfo": {"info_kind": "veth"}},
    {"ifname": "veth2", "link": "veth1", "linkinfo": {"info_kind": "veth"}},
    {"ifname": "veth3", "master": DOCKERS_BRIDGE, "link_netnsid": 1, "linkinfo": {"info_kind": "veth"}},
    {"ifname": "veth4", "master": "cni-soak1", "link": "veth5", "linkinfo": {"info_kind": "veth"}},
    {"ifname": "cni0123456789ab", "link": "uplink0", "linkinfo": {"info_kind": "macvlan"}},
    {"ifname": "cm-8d7a", "link": "uplink0", "linkinfo": {"info_kind": "macvlan"}},
    {"ifname": "lo"},
)


def test_links_of_dockers_own_drivers_are_stray_in_the_host_namespace() -> None:
    """Not those whose other end is in a container, and not those of this driver."""
    assert find_stray_links(json.dumps(LINKS)) == {"veth1", "cm-8d7a"}
