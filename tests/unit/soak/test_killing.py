# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a killed dockerd has left: links in the host namespace, and processes of containers."""

import json

from cni_bridge_spec import as_object, get_strings
from tests.soak.docker_calls import call_of
from tests.soak.killing import find_stray_links, is_of_container
from tests.soak.lists import DOCKERS_BRIDGE
from tests.soak.operations import Kind, Operation

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


def test_processes_of_containers() -> None:
    """Also of those that share the network namespace of others: such a process alone keeps the links of both."""
    _, _, body = call_of(Operation(kind=Kind.CREATE, container="c2", partner="c1"))
    partner = [word.encode() for word in get_strings(as_object(body, "the request"), "Cmd")]
    for words in (partner, [b"httpd", b"-f", b"-p", b"80", b"-h", b"/tmp", b""], [b"runc", b"init", b""]):
        assert is_of_container(words), words
    assert not is_of_container([b"dockerd", b""])
