# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a list needs from the host, which plugins suit each other, and what is refused."""

from collections.abc import Callable, Sequence

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import NotCarriable, Refused
from cnm_bridge.core.link_state import Sysctl
from cnm_bridge.core.lists.plugins import (
    choose_observation,
    describe_uncarriable,
    find_unsuitable,
    host_link,
    keeps_ipv6,
    refuse_without_ipv6,
)
from tests.records import list_of

DUAL: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}
IPV4: JsonObject = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]]}


def one_plugin(plugin: str, ipam: JsonObject) -> NetworkConfigurationList:
    """Make a list with one plugin, which has an address of the host if it can."""
    document: JsonObject = {"type": plugin, "bridge": "blue", "isGateway": True, "ipam": ipam}
    return list_of(document, name="lan")


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
        refuse_without_ipv6(one_plugin(plugin, DUAL), is_ipv6_on)
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
    refuse_without_ipv6(one_plugin(plugin, ipam), is_ipv6_on)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a/b", "x" * 16])
def test_a_name_that_no_link_can_have(name: str) -> None:
    """It is refused before anything looks for the link; the file may have changed since the network was made."""
    document: JsonObject = {"type": "bridge", "bridge": name, "isGateway": True, "ipam": DUAL}
    made = list_of(document, name="lan")
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


@pytest.mark.parametrize(
    ("plugin", "name"),
    [
        ({"type": "macvlan", "ipam": {"type": "dhcp"}}, "dhcp"),
        ({"type": "vrf"}, "vrf"),
        ({"type": "weave-net"}, "weave-net"),
    ],
)
def test_unsuitable_plugins_are_found(plugin: JsonObject, name: str) -> None:
    """The text names the plugin, also if it is the IPAM plugin of another one."""
    found = find_unsuitable(list_of({"type": "bridge"}, plugin))
    assert found is not None
    assert found.startswith(f"plugin {name}: ")
    assert find_unsuitable(list_of({"type": "bridge"})) is None


OFF, ON = (Sysctl(name="net/ipv6/conf/eth0/disable_ipv6", value=value) for value in "10")


@pytest.mark.parametrize(
    ("plugin", "sysctls", "is_kept"),
    [
        ({"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "0"}}, [], True),
        ({"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "0"}}, [OFF], False),
        ({"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.disable_ipv6": "1"}}, [], False),
        ({"type": "tuning", "sysctl": {"net.ipv6.conf.IFNAME.accept_ra": "2"}}, [], False),
        ({"type": "firewall"}, [], False),
        ({"type": "firewall"}, [ON], True),
    ],
)
def test_settings_switch_ipv6_on(plugin: JsonObject, sysctls: Sequence[Sysctl], is_kept: bool) -> None:
    """Without any, IPv6 is off on a link whose plugins configured none; the options override the plugins."""
    assert keeps_ipv6(list_of({"type": "bridge"}, plugin), "eth0", sysctls) is is_kept


def test_known_plugins_limit_the_capture() -> None:
    """Capturing all sysctls takes milliseconds, so only those are captured that the plugins can change."""
    tuning: JsonObject = {
        "type": "tuning",
        "sysctl": {"net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.arp_filter": "1"},
        "args": {"cni": {"sysctl": {"net.ipv6.conf.eth0.hop_limit": "9"}}},
    }
    observation = choose_observation(list_of({"type": "bridge"}, tuning), "eth0")
    assert observation.settings is not None
    assert "net/ipv4/conf/eth0/arp_notify" in observation.settings
    assert set(observation.stated) == {
        "net/core/somaxconn",
        "net/ipv4/conf/eth0/arp_filter",
        "net/ipv6/conf/eth0/hop_limit",
    }
    assert not observation.thorough


def test_unknown_plugins_need_a_complete_capture() -> None:
    """An unknown plugin, or IPAM plugin, may change anything."""
    unknown: Sequence[JsonObject] = ({"type": "mystery"}, {"type": "macvlan", "ipam": {"type": "mystery"}})
    for plugin in unknown:
        observation = choose_observation(list_of({"type": "bridge"}, plugin), "eth0")
        assert (observation.settings, observation.thorough) == (None, True)


@pytest.mark.parametrize(
    ("plugins", "words"),
    [
        (("bridge", "mystery"), "plugin mystery made"),
        (("bridge", "tuning"), "one of the plugins bridge, tuning made"),
        (("odd", "bridge", "mystery"), "one of the plugins odd, mystery made"),
    ],
)
def test_the_error_names_the_plugins_that_may_be_the_cause(plugins: tuple[str, ...], words: str) -> None:
    """If something cannot be moved to the sandbox, unknown plugins are suspected first."""
    text = describe_uncarriable(list_of(*({"type": name} for name in plugins)), NotCarriable("a further link, dummy0"))
    assert words in text
    assert "a further link, dummy0" in text


def test_the_error_names_an_ipam_plugin() -> None:
    """It runs in the namespace too."""
    listed = list_of({"type": "bridge", "ipam": {"type": "mystery"}}, {"type": "tuning"})
    assert "plugin mystery made" in describe_uncarriable(listed, NotCarriable("a further link, dummy0"))


@pytest.mark.parametrize(
    "odd", [{"sysctl": []}, {"args": []}, {"args": {"cni": 5}}, {"args": {"cni": {"sysctl": "x"}}}]
)
def test_malformed_tuning_settings_are_left_to_the_plugin(odd: JsonObject) -> None:
    """The plugin rejects them at ADD."""
    assert choose_observation(list_of({"type": "bridge"}, {"type": "tuning", **odd}), "eth0").stated == ()
