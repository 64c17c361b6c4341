# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Typed capability arguments."""

from collections.abc import Callable
from typing import Any

import pytest

from cni_invoker import Attachment, Bandwidth, Capabilities, PortMapping
from cni_invoker.errors import InvalidParameter


def test_all_capabilities() -> None:
    """Each has the key and the form of CNI's conventions; empty ones are left out, and others take precedence."""
    everything = Capabilities(
        port_mappings=(PortMapping(host_port=53, container_port=5353, protocol="udp", host_ip="::1"),),
        bandwidth=Bandwidth(ingress_rate=1000, ingress_burst=2000),
        ips=("10.1.2.3/24", "fd00::2"),
        mac="c2:11:22:33:44:55",
        dns_servers=("10.1.2.1",),
        dns_searches=("lan",),
        aliases=("db",),
        infiniband_guid="c2:11:22:33:44:55:66:77",
        device_id="0000:04:00.1",
        cgroup_path="/pods/1",
        others={"mac": "another", "own": 1},
    )
    assert everything.document == {
        "portMappings": [{"hostPort": 53, "containerPort": 5353, "protocol": "udp", "hostIP": "::1"}],
        "bandwidth": {"ingressRate": 1000, "ingressBurst": 2000},
        "ips": ["10.1.2.3/24", "fd00::2"],
        "mac": "another",
        "dns": {"servers": ["10.1.2.1"], "searches": ["lan"]},
        "aliases": ["db"],
        "infinibandGUID": "c2:11:22:33:44:55:66:77",
        "deviceID": "0000:04:00.1",
        "cgroupPath": "/pods/1",
        "own": 1,
    }
    assert Capabilities().document == {}


def test_lists_are_accepted() -> None:
    """As what is JSON later; they are kept as tuples, so that changing a list changes nothing."""
    ports, ips = [PortMapping(host_port=8080, container_port=80)], ["10.1.2.3"]
    capabilities = Capabilities(port_mappings=ports, ips=ips)
    ports.clear()
    ips.append("10.1.2.4")
    assert capabilities == Capabilities(
        port_mappings=(PortMapping(host_port=8080, container_port=80),), ips=("10.1.2.3",)
    )


def test_an_attachment_takes_them() -> None:
    """As well as the mapping that they stand for."""
    capabilities = Capabilities(mac="c2:11:22:33:44:55")
    attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1", capability_args=capabilities)
    assert attachment.capability_args == {"mac": "c2:11:22:33:44:55"}


def anything(callee: Callable[..., object]) -> Callable[..., Any]:
    """Return a function whose parameters the type checker does not know."""
    return callee


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (PortMapping, {"host_port": 0, "container_port": 80}),
        (PortMapping, {"host_port": 80, "container_port": 65536}),
        (PortMapping, {"host_port": 80, "container_port": 80, "protocol": "TCP"}),
        (PortMapping, {"host_port": 80, "container_port": 80, "host_ip": "localhost"}),
        (Bandwidth, {"ingress_rate": 1}),
        (Bandwidth, {"egress_rate": -1, "egress_burst": -1}),
        (Capabilities, {"ips": ("10.1.2.3/33",)}),
        (Capabilities, {"mac": "c2:11:22:33:44"}),
        (Capabilities, {"infiniband_guid": "c2:11:22:33:44:55"}),
    ],
)
def test_impossible_values(kind: Callable[..., object], values: dict[str, object]) -> None:
    """They are errors where they are written, before anything runs."""
    with pytest.raises(InvalidParameter):
        anything(kind)(**values)
