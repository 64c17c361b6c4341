# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a list needs from the host, and what is refused without it."""

from collections.abc import Callable

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.lists.plugins import host_link, refuse_without_ipv6

DUAL: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}
IPV4: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]]}


def network(plugin: str, ipam: JsonObject) -> NetworkConfigurationList:
    """Make a list with one plugin, which has an address of the host if it can."""
    document: JsonObject = {"type": plugin, "bridge": "blue", "isGateway": True, "ipam": ipam}
    return NetworkConfigurationList.from_document({"name": "lan", "cniVersion": "1.0.0", "plugins": [document]})


def on(*links: str) -> Callable[[str], bool | None]:
    """A host on which these links accept IPv6."""
    return lambda link: link in links


@pytest.mark.parametrize(
    ("plugin", "is_ipv6_on", "reason"),
    [
        ("bridge", on(""), "blue on this host accepts none: sysctl -w net.ipv6.conf.all.disable_ipv6=0 && echo"),
        ("ptp", on("blue"), "the link of a container on this host accepts none: sysctl -w"),
        (
            "macvlan",
            lambda _: None,
            "this kernel has no IPv6: start the host without the kernel parameter ipv6",
        ),
    ],
)
def test_ipv6_on_a_host_without_it(plugin: str, is_ipv6_on: Callable[[str], bool | None], reason: str) -> None:
    """The error says what gives IPv6 addresses, why none is accepted, and what to do."""
    with pytest.raises(Refused) as refused:
        refuse_without_ipv6(network(plugin, DUAL), is_ipv6_on)
    assert str(refused.value).startswith(f"CNI configuration lan gives IPv6 addresses, and {reason}")
    assert str(refused.value).endswith("or take the IPv6 range out of the list")


@pytest.mark.parametrize(
    ("plugin", "ipam", "is_ipv6_on"),
    [
        ("bridge", IPV4, on()),
        ("bridge", DUAL, on("blue")),  # only new links accept none
        ("ptp", DUAL, on("")),
        ("macvlan", DUAL, on()),  # no link of the host gets an address
        ("macvlan", IPV4, lambda _: None),
    ],
)
def test_ipv6_that_is_not_needed(plugin: str, ipam: JsonObject, is_ipv6_on: Callable[[str], bool | None]) -> None:
    """Nothing is refused that works."""
    refuse_without_ipv6(network(plugin, ipam), is_ipv6_on)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a/b", "x" * 16])
def test_a_name_that_no_link_can_have(name: str) -> None:
    """It is refused before anything looks for the link; the file may have changed since the network was made."""
    document: JsonObject = {"type": "bridge", "bridge": name, "isGateway": True, "ipam": DUAL}
    made = NetworkConfigurationList.from_document({"name": "lan", "cniVersion": "1.0.0", "plugins": [document]})
    with pytest.raises(Refused, match="CNI configuration lan cannot be used: plugin bridge: "):
        refuse_without_ipv6(made, on())


@pytest.mark.parametrize(
    ("plugins", "link"),
    [
        ([{"type": "bridge"}, {"type": "firewall"}], "cni0"),
        ([{"type": "bridge", "bridge": "cni-blue"}], "cni-blue"),
        ([{"type": "macvlan", "master": "eth1"}, {"type": "tuning"}], "eth1"),
        ([{"type": "macvlan"}], None),
        ([{"type": "ptp"}, {"type": "macvlan", "master": "eth0", "linkInContainer": True}], None),
        ([{"type": "tap", "bridge": "br0"}], "br0"),
        ([{"type": "host-device", "device": "eth2"}], "eth2"),
        ([{"type": "ptp"}], None),
        ([{"type": "calico", "master": "eth3"}], None),
    ],
)
def test_the_link_that_containers_are_behind(plugins: list[JsonObject], link: str | None) -> None:
    """A bridge, the parent, or none."""
    assert host_link(plugins) == link
