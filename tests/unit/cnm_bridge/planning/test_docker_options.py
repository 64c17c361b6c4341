# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No option of Docker's is dropped: each is honoured, or Docker has read it, or it is refused or logged."""

import pytest

from cnm_bridge.errors import BadOption
from cnm_bridge.planning.docker_options import (
    LinkSetting,
    parse_sysctls,
    refuse_docker_option,
    refuse_unread,
    split_unknown,
)

IPV4 = "com.docker.network.enable_ipv4"
IPV6 = "com.docker.network.enable_ipv6"
MESSAGES = "com.docker.network.advertise_addr_nmsgs"


@pytest.mark.parametrize("value", ["false", "0", "F", "true", "1"])
def test_families_that_the_engine_has_read(value: str) -> None:
    """From Engine 28 on the options are Docker's, and --ipv4 and --ipv6 come before them."""
    refuse_unread({IPV4: value, IPV6: value, MESSAGES: "0"}, ipv4=False, ipv6=True)


@pytest.mark.parametrize(
    ("options", "ipv6", "said"),
    [
        ({IPV4: "false"}, False, "make the network with --ipam-driver null"),
        ({IPV6: "true"}, False, "give --ipv6, or leave that out"),
        ({IPV6: "false"}, True, "give --ipv6, or leave that out"),
        ({IPV4: "no"}, False, "'no' is neither true nor false"),
        ({MESSAGES: "3"}, False, "it announces no addresses"),
    ],
)
def test_families_that_the_engine_has_not_read(options: dict[str, str], ipv6: bool, said: str) -> None:
    """An older engine passes the options on without regard; that is refused, with what to do instead."""
    with pytest.raises(BadOption, match=next(iter(options))) as caught:
        refuse_unread(options, ipv4=None, ipv6=ipv6)
    assert said in str(caught.value)


@pytest.mark.parametrize(("options", "ipv6"), [({IPV4: "true"}, False), ({IPV6: "1"}, True), ({IPV6: "f"}, False)])
def test_families_that_are_so_anyway(options: dict[str, str], ipv6: bool) -> None:
    """What an older engine does in any case may be asked for."""
    refuse_unread(options, ipv4=None, ipv6=ipv6)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("com.docker.network.endpoint.ifname", "give cni.ifname-prefix"),
        ("com.docker.network.container_iface_prefix", "give cni.ifname-prefix"),
        ("com.docker.network.driver.mtu", 'write "mtu" into the CNI configuration'),
        ("com.docker.network.internal", "give --internal"),
        ("com.docker.network.host_ipv4", "Docker's own driver bridge"),
        ("com.docker.network.bridge.gateway_mode_ipv4", "Docker's own driver bridge"),
    ],
)
def test_what_has_no_effect_here(option: str, said: str) -> None:
    """It is refused, and what to do instead is told."""
    with pytest.raises(BadOption, match=option) as caught:
        refuse_docker_option(option)
    assert said in str(caught.value)
    assert split_unknown({option: "x"}) == ({option: "x"}, ())


def test_what_nobody_has_heard_of() -> None:
    """A newer engine may say it of itself, so that it keeps no container from starting."""
    options = {"cni.args.A": "1", "com.docker.network.endpoint.sysctls": "", "com.docker.network.endpoint.news": "x"}
    known, unknown = split_unknown(options)
    assert known == {"cni.args.A": "1", "com.docker.network.endpoint.sysctls": ""}
    assert unknown == ("com.docker.network.endpoint.news",)


def test_settings() -> None:
    """They are written as Docker has them, in any case: the command line of 20.10 makes lower case of all."""
    text = "net.ipv4.conf.IFNAME.log_martians=1, net.ipv6.neigh.ifname.app_solicit = 3"
    with pytest.raises(BadOption, match="app_solicit = 3"):
        parse_sysctls(text)
    first, second = parse_sysctls(text.replace(" = ", "="))
    assert first == LinkSetting(family="net/ipv4/conf", name="log_martians", value="1")
    assert second.path("eth0") == "net/ipv6/neigh/eth0/app_solicit"


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
def test_no_settings(text: str) -> None:
    """Whatever is of another form is refused, for each becomes a path."""
    with pytest.raises(BadOption, match=r"net\.ipv4\.conf\.IFNAME\.NAME=VALUE"):
        parse_sysctls(text)
