# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Options are parsed, or rejected with an error that helps."""

from collections.abc import Callable
from ipaddress import ip_address, ip_interface

import pytest

from cni_bridge_state import IdentityRequest
from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.options.cni_options import Options, doubtful_arguments, merge_options, parse_options, with_spelling
from cnm_bridge.core.options.docker_options import SYSCTLS


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("cni.netwrok", "cni.network"),
        ("cni.bandwith.ingress-rate", "cni.bandwidth.ingress-rate"),
        ("cni.label.app", "cni.labels.KEY"),
        ("cni.args.", "cni.args.KEY"),
        ("cni.ip", "cni.ips"),
    ],
)
def test_a_typo_gets_the_nearest_option(typo: str, meant: str) -> None:
    """The error suggests the option that was meant."""
    with pytest.raises(BadOption) as caught:
        parse_options({typo: "x"})
    assert f"option {typo}: " in str(caught.value)
    assert f"did you mean {meant}?" in str(caught.value)


def test_an_unknown_option_gets_the_list_of_options() -> None:
    """If no option is similar, the error lists all of them."""
    with pytest.raises(BadOption, match=r"known options: .*cni\.args\.KEY.*cni\.network"):
        parse_options({"zebra": "eth0"})


def test_the_spelling_of_arguments_is_restored() -> None:
    """That of known ones always, that of others if an operator has listed them."""
    assert parse_options({}, {"cni.args.ovnport": "p1"}).args == (("OvnPort", "p1"),)
    given = with_spelling({"cni.args.portname": "p2", "cni.labels.portname": "x"}, ["PortName"])
    assert given == {"cni.args.PortName": "p2", "cni.labels.portname": "x"}


def test_arguments_that_may_have_lost_their_upper_case() -> None:
    """Those all in lower case, unless they are known, listed, or an option of the network."""
    given = dict.fromkeys(("cni.args.zone", "cni.args.ovnport", "cni.args.a1", "cni.args.B", "cni.args.7"), "")
    assert doubtful_arguments({}, given, []) == ("cni.args.a1", "cni.args.zone")
    assert doubtful_arguments({"cni.args.A1": ""}, given, ["zone"]) == ()


def test_dockers_own_network_options() -> None:
    """Options that libnetwork reads are accepted; options without effect here are rejected."""
    for option in ("advertise_addr_nmsgs", "enable_ipv4", "enable_ipv6"):
        assert parse_options({f"com.docker.network.{option}": "0"}) == Options()
    with pytest.raises(BadOption, match="Docker's own driver bridge"):
        parse_options({"com.docker.network.bridge.name": "br0"})
    with pytest.raises(BadOption, match="unknown to cni-bridge"):
        parse_options({"com.docker.network.endpoint.sysctl": ""})


def test_all_options_are_parsed() -> None:
    """Each option has a typed field."""
    assert parse_options(
        {
            "cni.ips": "10.1.0.9/24, fd00::9",
            "cni.args.B": "2",
            "cni.args.A": "1",
            "cni.labels.app": "a=b;c",
            "cni.capability.deviceID": '"0000:04:00.5"',
            "cni.bandwidth.egress-rate": "10M",
            "cni.ifname-prefix": "lan",
        }
    ) == Options(
        ips=(ip_interface("10.1.0.9/24"), ip_address("fd00::9")),
        args=(("A", "1"), ("B", "2")),
        labels=(("app", "a=b;c"),),
        capabilities={
            "deviceID": "0000:04:00.5",
            "bandwidth": {"egressRate": 10_000_000, "egressBurst": 1_000_000},
        },
        ifname_prefix="lan",
    )


WELL_KNOWN = ("K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID", "IP", "MAC", "GATEWAY")


@pytest.mark.parametrize("key", WELL_KNOWN)
@pytest.mark.parametrize("spell", [str, str.lower, str.title])
def test_well_known_arguments(key: str, spell: Callable[[str], str]) -> None:
    """Plugins know them in one spelling; options are case-insensitive."""
    assert parse_options({f"cni.args.{spell(key)}": "x"}).args == ((key, "x"),)


def test_other_arguments_keep_their_case() -> None:
    """Their spelling is unknown."""
    assert parse_options({"cni.args.K8s_Pod": "x", "cni.args.k8s_pod": "y"}).args == (
        ("K8s_Pod", "x"),
        ("k8s_pod", "y"),
    )


def test_a_well_known_argument_in_two_spellings() -> None:
    """That of an endpoint wins over that of its network; two in the same place are an error."""
    merged = merge_options({"cni.args.k8s_pod_name": "net"}, {"cni.args.K8S_Pod_Name": "web"})
    assert parse_options(merged).args == (("K8S_POD_NAME", "web"),)
    with pytest.raises(BadOption, match=r"cni\.args\.IP: is given twice"):
        parse_options({"cni.args.ip": "10.1.0.9", "cni.args.IP": "10.1.0.8"})
    with pytest.raises(BadOption, match="is always set to 1"):
        parse_options({"cni.args.ignoreunknown": "0"})


def test_endpoint_options_win_over_network_options() -> None:
    """Case is ignored if Docker's command line has converted it, unless the network has both spellings."""
    network = {"cni.args.A": "1", "cni.args.b": "2", "cni.args.B": "3"}
    assert merge_options(network, {"cni.args.a": "x"}) == {**network, "cni.args.A": "x"}
    assert merge_options(network, {"cni.args.b": "x", "cni.ips": "y"}) == {**network, "cni.args.b": "x", "cni.ips": "y"}
    assert merge_options(network, {"cni.args.A": "x"}) == {**network, "cni.args.A": "x"}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("cni.network", "", "is empty"),
        ("cni.ips", "10.1.0.300", "10.1.0.300"),
        ("cni.ips", "", "is not an address"),
        ("cni.ips", "fd00::1,fd00::1/64", "twice"),
        ("cni.ips", "0.0.0.0", "the unspecified address"),
        ("cni.ips", "::", "the unspecified address"),
        ("cni.ips", "127.0.0.1/8", "loopback"),
        ("cni.ips", "ff02::1", "a multicast address"),
        ("cni.ips", "255.255.255.255", "the broadcast address"),
        ("cni.ips", "10.1.0.255/24", "the broadcast address of 10.1.0.0/24"),
        ("cni.ips", "10.1.0.0/24", "the network address of 10.1.0.0/24"),
        ("cni.ips", "fe80::1%eth0", "one link of this host"),
        ("cni.ips", "::ffff:10.1.0.5", "the IPv4-mapped form of 10.1.0.5"),
        ("cni.args.IgnoreUnknown", "0", "always set to 1"),
        ("cni.args.A", "x;y", "nor have ';' or '='"),
        ("cni.args.A=B", "x", "nor have ';' or '='"),
        ("cni.capability.bandwidth", "{}", "cni.bandwidth.ingress-rate"),
        ("cni.capability.portMappings", "[]", "-p"),
        ("cni.capability.portmappings", "[]", "-p"),
        ("cni.capability.IPs", "[]", "cni.ips"),
        ("cni.capability.deviceID", "0000:04:00.5", "needs quotes"),
        ("cni.bandwidth.ingress-rate", "fast", "bits per second"),
        ("cni.bandwidth.ingress-rate", "0", "bits per second"),
        ("cni.bandwidth.ingress-rate", "9" * 400, "bits per second"),
        ("cni.bandwidth.ingress-rate", "10000000T", "too large"),
        ("cni.bandwidth.ingress-rate", "\u0663M", "bits per second"),
        ("cni.bandwidth.ingress-rate", "10MB", "bits per second"),
        ("cni.bandwidth.ingress-burst", "1M", "no effect without cni.bandwidth.ingress-rate"),
        ("cni.identity", "podman", "give none or docker"),
        ("cni.identity-labels", "app", "no effect without cni.identity=docker"),
        ("cni.identity-required", "true", "no effect without cni.identity=docker"),
        ("cni.identity-required", "yes", "is not true or false"),
        ("cni.identity-args", '{"x": "{name}"}', "no effect without cni.identity=docker"),
        ("cni.dhcp.client-id", "", "1 to 128 printable"),
        ("cni.dhcp.client-id", "a\nb", "1 to 128 printable"),
        ("cni.dhcp.client-id", "x" * 129, "1 to 128 printable"),
        ("cni.ifname-prefix", "", "cannot be the prefix"),
        ("cni.ifname-prefix", "lan0", "not ending with a digit"),
        ("cni.ifname-prefix", "a/b", "cannot be the prefix"),
        ("cni.ifname-prefix", "0lan", "cannot be the prefix"),
        ("cni.ifname-prefix", "abcdefghijklmn", "1 to 13"),
    ],
)
def test_invalid_values_are_rejected(option: str, value: str, message: str) -> None:
    """The error names the option."""
    with pytest.raises(BadOption) as caught:
        parse_options({option: value})
    assert caught.value.option == option
    assert message in str(caught.value)


def test_both_addresses_of_a_31_network_are_valid() -> None:
    """Such a network has neither a network address nor a broadcast address."""
    assert [str(address) for address in parse_options({"cni.ips": "10.1.0.0/31"}).ips] == ["10.1.0.0/31"]


def test_a_long_value_is_not_repeated() -> None:
    """The error stays readable."""
    with pytest.raises(BadOption) as caught:
        parse_options({"cni.capability.x": "[" * 30_000})
    assert len(str(caught.value)) < 300


def test_the_request_for_an_identity() -> None:
    """Patterns of labels are separated by commas; without `cni.identity` there is no request."""
    given = {"cni.identity": "docker", "cni.identity-labels": "app, tier-*", "cni.identity-required": "true"}
    assert parse_options(given).identity == IdentityRequest(labels=("app", "tier-*"), is_required=True)
    assert parse_options({**given, "cni.identity-args": '{"x": ["{name}", 1]}'}).identity_args == {"x": ["{name}", 1]}
    assert parse_options({}).identity is parse_options({"cni.identity": "none"}).identity is None


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("[]", "must be an object, not an array"),
        ("{", "is not a template"),
        ('{"x": "{nmae}"}', "{nmae} in '{nmae}' is not one of {id}, {name}, {image}, {labels} alone"),
        ('{"x": ["all: {labels}"]}', "{labels} in 'all: {labels}' is not one of"),
    ],
)
def test_invalid_templates_are_rejected(template: str, message: str) -> None:
    """Before the network is made."""
    with pytest.raises(BadOption) as caught:
        parse_options({"cni.identity": "docker", "cni.identity-args": template})
    assert message in str(caught.value)


def test_a_template_is_an_option_of_networks() -> None:
    """All containers of a network have their labels at the same place."""
    with pytest.raises(BadOption, match="of networks, not of containers"):
        parse_options({"cni.identity": "docker"}, {"cni.identity-args": "{}"})


@pytest.mark.parametrize(
    ("network", "endpoint", "text"),
    [
        ({"cni.sticky": "web"}, None, "is an option of containers, not of networks"),
        ({"cni.sticky": "name"}, None, "not always known"),
        ({}, {"cni.sticky": "a/b"}, "cni.sticky: is not a key"),
        ({}, {"cni.sticky": ""}, "cni.sticky: is not a key"),
        ({}, {"cni.sticky": "w" * 129}, "cni.sticky: is not a key"),
    ],
)
def test_refused_keys(network: dict[str, str], endpoint: dict[str, str] | None, text: str) -> None:
    """The error says what a key looks like, or where it belongs."""
    with pytest.raises(BadOption, match=text):
        parse_options(network, endpoint)


def test_keys() -> None:
    """Case does not matter, because Docker 20.10 lowers it."""
    assert parse_options({}, {"cni.sticky": "Web_1.a-b"}).sticky == "web_1.a-b"


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
@pytest.mark.parametrize("option", ["cni.labels.tier", "cni.capability.x", "cni.identity-args", "cni.args.K", SYSCTLS])
def test_what_no_program_can_receive(option: str, text: str) -> None:
    """It is refused in the value of each option, and in the user's part of a name."""
    with pytest.raises(BadOption, match="has a NUL or a lone surrogate"):
        parse_options({option: text})
    with pytest.raises(BadOption, match="has a NUL or a lone surrogate"):
        parse_options({f"cni.labels.{text}": "x"})
