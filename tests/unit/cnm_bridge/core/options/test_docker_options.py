# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No option of Docker is ignored silently: it has an effect, Docker has read it, or it is rejected or logged."""

import pytest

from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.options.docker_options import (
    Announcements,
    LinkSetting,
    parse_announcements,
    parse_ifname,
    parse_sysctls,
    refuse_docker_option,
    refuse_unread,
    split_unknown,
)

IPV4 = "com.docker.network.enable_ipv4"
IPV6 = "com.docker.network.enable_ipv6"
MESSAGES = "com.docker.network.advertise_addr_nmsgs"
INTERVAL = "com.docker.network.advertise_addr_ms"


@pytest.mark.parametrize("value", ["false", "0", "F", "true", "1"])
def test_address_family_options_that_the_engine_reads_are_accepted(value: str) -> None:
    """Engine 28 and newer read them, and --ipv4 and --ipv6 win over them."""
    refuse_unread({IPV4: value, IPV6: value, MESSAGES: "0"}, ipv4=False, ipv6=True)


@pytest.mark.parametrize(
    ("options", "ipv6", "message"),
    [
        ({IPV4: "false"}, False, "make the network with --ipam-driver null"),
        ({IPV6: "true"}, False, "give --ipv6, or leave that out"),
        ({IPV6: "false"}, True, "give --ipv6, or leave that out"),
        ({IPV4: "no"}, False, "'no' is neither true nor false"),
    ],
)
def test_address_family_options_that_the_engine_ignores_are_rejected(
    options: dict[str, str], ipv6: bool, message: str
) -> None:
    """An older engine passes them on without reading them; the error says what to use instead."""
    with pytest.raises(BadOption, match=next(iter(options))) as caught:
        refuse_unread(options, ipv4=None, ipv6=ipv6)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "announcements"),
    [
        ({}, Announcements(count=3, interval_s=1.0)),
        ({MESSAGES: "0"}, Announcements(count=0, interval_s=1.0)),
        ({MESSAGES: "2", INTERVAL: "100"}, Announcements(count=2, interval_s=0.1)),
    ],
)
def test_how_addresses_are_announced(options: dict[str, str], announcements: Announcements) -> None:
    """The numbers, and the defaults, are Docker's."""
    assert parse_announcements(options) == announcements


@pytest.mark.parametrize("options", [{MESSAGES: "4"}, {MESSAGES: "-1"}, {MESSAGES: "two"}, {INTERVAL: "99"}])
def test_impossible_announcements_are_rejected(options: dict[str, str]) -> None:
    """Engines before 28 do not look at these numbers."""
    with pytest.raises(BadOption, match=r"is not a number from"):
        parse_announcements(options)


@pytest.mark.parametrize(("options", "ipv6"), [({IPV4: "true"}, False), ({IPV6: "1"}, True), ({IPV6: "f"}, False)])
def test_address_family_options_without_a_difference_are_accepted(options: dict[str, str], ipv6: bool) -> None:
    """What an older engine does anyway may be requested."""
    refuse_unread(options, ipv4=None, ipv6=ipv6)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("com.docker.network.container_iface_prefix", "give cni.ifname-prefix"),
        ("com.docker.network.driver.mtu", 'write "mtu" into the CNI configuration'),
        ("com.docker.network.internal", "give --internal"),
        ("com.docker.network.host_ipv4", "Docker's own driver bridge"),
        ("com.docker.network.bridge.gateway_mode_ipv4", "Docker's own driver bridge"),
    ],
)
def test_options_without_effect_are_rejected(option: str, message: str) -> None:
    """The error says what to use instead."""
    with pytest.raises(BadOption, match=option) as caught:
        refuse_docker_option(option)
    assert message in str(caught.value)
    assert split_unknown({option: "x"}) == ({option: "x"}, ())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("parent", 'write the link as "master" into the CNI configuration; `cni-bridge network create NAME --parent'),
        ("macvlan_mode", 'write it as "mode"'),
        ("ipvlan_mode", 'write it as "mode"'),
    ],
)
def test_network_options_of_dockers_macvlan_are_rejected(option: str, message: str) -> None:
    """The error says where the list has the same."""
    with pytest.raises(BadOption, match=option) as caught:
        refuse_docker_option(option)
    assert message in str(caught.value)


def test_unknown_endpoint_options_are_separated() -> None:
    """A newer engine or another tool may set them itself, so they must not prevent a container from starting."""
    options = {
        "cni.args.A": "1",
        "com.docker.network.endpoint.sysctls": "",
        "com.docker.network.endpoint.news": "x",
        "com.docker-py.setting": "yes",
        "key1": "value1",
        "parent": "eth0",
    }
    known, unknown = split_unknown(options)
    assert known == {"cni.args.A": "1", "com.docker.network.endpoint.sysctls": ""}
    assert unknown == ("com.docker-py.setting", "com.docker.network.endpoint.news", "key1", "parent")


@pytest.mark.parametrize("option", ["cni.ipz", "CNI.ips", "cni."])
def test_unknown_endpoint_options_that_begin_as_ours_remain(option: str) -> None:
    """They are misspelt, and are refused."""
    assert split_unknown({option: "x"}) == ({option: "x"}, ())


def test_sysctls_are_parsed() -> None:
    """They have Docker's syntax; case is ignored, because the command line of 20.10 converts options to lower case."""
    text = "net.ipv4.conf.IFNAME.log_martians=1, net.ipv6.neigh.ifname.app_solicit = 3"
    with pytest.raises(BadOption, match="app_solicit = 3"):
        parse_sysctls(text)
    first, second = parse_sysctls(text.replace(" = ", "="))
    assert first == LinkSetting(family="net/ipv4/conf", name="log_martians", value="1")
    assert second.path("eth0") == "net/ipv6/neigh/eth0/app_solicit"
    assert str(second) == "net.ipv6.neigh.IFNAME.app_solicit"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "net.ipv4.conf.IFNAME.log_martians",
        "net.ipv4.conf.eth0.log_martians=1",
        "net.core.IFNAME.x=1",
        "net.ipv4.conf.IFNAME.../../../kernel/x=1",
        "kernel.IFNAME.x=1",
        "net.ipv4.conf.IFNAME.a=1,",
    ],
)
def test_invalid_sysctls_are_rejected(text: str) -> None:
    """Each becomes a path, so no other syntax is accepted."""
    with pytest.raises(BadOption, match=r"net\.ipv4\.conf\.IFNAME\.NAME=VALUE"):
        parse_sysctls(text)


@pytest.mark.parametrize("name", ["wan0", "e", "enp0s31f6.100", "A_b-c"])
def test_the_name_of_a_link(name: str) -> None:
    """A name that the kernel allows is unchanged."""
    assert parse_ifname(name) == name


@pytest.mark.parametrize("name", ["", "sixteen-letters-", "a/b", "a b", ".", "..", "lo", "eth0:1", "ä"])
def test_an_impossible_name_of_a_link(name: str) -> None:
    """The error shows the value and what is possible."""
    with pytest.raises(BadOption, match="1 to 15 letters"):
        parse_ifname(name)
