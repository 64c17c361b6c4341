# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each fault of configurations, plugins and addresses is found, with the command that fixes it, and nothing else."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import PoolRecord
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, DockerNetwork, Facts, Severity
from cnm_bridge.operator.doctor.report import Report
from cnm_bridge.operator.host import HostLink, HostRoute
from tests.unit.cnm_bridge.operator.doctor.host import BRIDGE, FIREWALL, HEALTHY, codes, configured, only, with_network


def test_plugins_and_files() -> None:
    """What cni-invoker finds is passed on."""
    lost = "bridge: not found"
    network = replace(
        configured(BRIDGE, FIREWALL, problems=(lost,), warnings=("firewall: no versions",)), missing=(lost,)
    )
    facts = replace(
        HEALTHY,
        networks=(network,),
        installation=replace(
            HEALTHY.installation, broken_files=("a.conflist: not JSON",), shadowed_files=("b.conflist is not used",)
        ),
    )
    found = Report.of(facts).findings
    assert {finding.code for finding in found} == {
        "plugin-unusable",
        "plugin-doubtful",
        "configuration-broken",
        "configuration-shadowed",
    }
    advice = next(finding.advice for finding in found if finding.code == "plugin-unusable")
    assert advice == "put the plugin into one of /opt/cni/bin; then cni-invoker validate blue"


@pytest.mark.parametrize(
    ("problem", "is_missing", "advice"),
    [
        ("portmap: not found; Debian: containernetworking-plugins", True, "apt-get install containernet"),
        (
            'bridge: "mtu" must be a whole number',
            False,
            "correct /etc/cni/net.d/blue.conflist; then cni-invoker validate blue",
        ),
    ],
)
def test_what_to_do_about_a_plugin(problem: str, advice: str, *, is_missing: bool) -> None:
    """Only the CNI project's own come with Debian's package; what is wrong in a list is corrected there."""
    network = replace(configured(BRIDGE, problems=(problem,)), missing=(problem,) if is_missing else ())
    (finding,) = (
        one for one in Report.of(replace(HEALTHY, networks=(network,))).findings if one.code == "plugin-unusable"
    )
    assert finding.advice.startswith(advice)


def test_ipam_sections() -> None:
    """A host may have only such files; one without a plugin, or without free addresses, is found like a list."""
    section = replace(configured({"type": "host-local", "ipam": BRIDGE["ipam"]}), is_section=True)
    nothing = replace(HEALTHY, networks=(), engine=replace(HEALTHY.engine, networks=()))
    report = Report.of(replace(nothing, sections=(section,)))
    assert report.findings == ()
    subject, text = report.examined[-1]
    assert subject == "IPAM section blue"
    assert text.startswith("CNI 1.0.0, plugin host-local; 10.22.0.0/28: 0 of 13 addresses reserved; ")
    assert codes(nothing) == ["no-configuration"]
    reserved = tuple(ip_address(f"10.22.0.{number}") for number in range(2, 15))
    bad = replace(section, problems=("host-local: not found",), reserved=reserved)
    findings = Report.of(replace(nothing, sections=(bad,))).findings
    assert {(one.code, one.subject) for one in findings} == {
        ("plugin-unusable", section.subject),
        ("addresses-full", section.subject),
    }
    assert "cni-invoker validate" not in "".join(one.advice for one in findings)


@pytest.mark.parametrize("key", ["bridge", "ipMasqBackend", "backend"])
def test_a_list_with_values_of_other_types(key: str) -> None:
    """The plugins refuse it; the doctor examines everything else."""
    assert codes(with_network({**BRIDGE, key: 5}, {**FIREWALL, key: 5})) == []


def test_a_full_range() -> None:
    """13 addresses are between network, gateway and broadcast; from nine tenths on it is reported."""
    for used, expected in ((11, []), (12, ["addresses-nearly-full"]), (13, ["addresses-full"])):
        reserved = tuple(f"10.22.0.{number}" for number in range(2, 2 + used))
        assert codes(with_network(BRIDGE, FIREWALL, reserved=reserved)) == expected


@pytest.mark.parametrize(
    ("destination", "link", "expected"),
    [
        ("10.22.0.0/16", "eth0", ["addresses-overlap-route"]),  # the LAN
        ("10.22.0.0/28", "wg0", ["addresses-overlap-route"]),
        ("10.22.0.0/27", "wg0", []),
        ("0.0.0.0/1", "wg0", []),
        ("10.22.0.0/30", "docker0", ["addresses-overlap-route"]),
        ("10.22.0.0/28", "cni-blue", []),  # its own
        ("0.0.0.0/0", "eth0", []),
        ("10.23.0.0/16", "eth0", []),
    ],
)
def test_a_range_that_overlaps_a_route(destination: str, link: str, expected: list[str]) -> None:
    """Packets for one of them would go to the other."""
    route = HostRoute(destination=ip_network(destination), link=link)
    lan = {"eth0": HostLink(mtu=1500, addresses=(ip_interface("10.22.0.9/16"),))}
    assert codes(replace(HEALTHY, routes=(route,), links=lan)) == expected


def test_routes_to_single_containers() -> None:
    """`ptp` makes one for each container."""
    ptp: JsonObject = {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.22.0.0/28"}}
    route = HostRoute(destination=ip_network("10.22.0.5/32"), link="veth1")
    assert codes(replace(with_network(ptp, FIREWALL), routes=(route,))) == []


def test_ranges_that_overlap_each_other() -> None:
    """Parts of one subnet are allowed."""

    def macvlan(name: str, first: int, last: int, subnet: str = "10.22.0.0/24") -> ConfiguredNetwork:
        ends = {"rangeStart": f"10.22.0.{first}", "rangeEnd": f"10.22.0.{last}"}
        plugin: JsonObject = {"type": "macvlan", "ipam": {"type": "host-local", "subnet": subnet, **ends}}
        return configured(plugin, name=name)

    apart = (macvlan("blue", 10, 19), macvlan("green", 20, 29))
    together = (macvlan("blue", 10, 20), macvlan("green", 20, 29))
    other = (macvlan("blue", 10, 19), macvlan("green", 20, 29, "10.22.0.0/25"))
    for networks, expected in ((apart, []), (together, ["addresses-overlap"]), (other, ["addresses-overlap"])):
        assert codes(replace(HEALTHY, networks=networks)) == expected


def test_a_docker_network_without_a_configuration() -> None:
    """The list was removed or renamed, or the name is misspelt."""
    names = {"shop": "blue", "red": "bleu"}
    networks = tuple(DockerNetwork(name=name, configuration=list_name) for name, list_name in names.items())
    finding = only(replace(HEALTHY, engine=replace(HEALTHY.engine, networks=networks)))
    assert (finding.severity, finding.code) == (Severity.ERROR, "configuration-missing")
    assert finding.subject == "Docker network red"
    assert "did you mean blue?" in finding.text


def with_pools(*pools: tuple[str, str | None]) -> Facts:
    """Return the host with a Docker network `shop` that has pools: subnets with their gateways."""
    records = tuple(
        PoolRecord(subnet=ip_network(subnet), gateway=ip_address(gateway) if gateway else None)
        for subnet, gateway in pools
    )
    network = DockerNetwork(name="shop", configuration="blue", pools=records)
    return replace(HEALTHY, engine=replace(HEALTHY.engine, networks=(network,)))


@pytest.mark.parametrize(
    "pools", [(("10.22.0.0/28", None),), (("10.22.0.0/28", "10.22.0.1"), ("fd22::/64", "fd22::1"))]
)
def test_docker_s_addresses_may_be_those_of_the_list(pools: tuple[tuple[str, str | None], ...]) -> None:
    """Then both choose the same ones."""
    assert codes(with_pools(*pools)) == []


@pytest.mark.parametrize(
    ("pools", "what"),
    [
        ((("172.18.0.0/16", "172.18.0.1"),), "Docker's IPAM driver chose 172.18.0.0/16"),
        ((("10.22.0.0/28", None), ("fd99::/64", None)), "Docker's IPAM driver chose fd99::/64"),
        ((("10.22.0.0/28", "10.22.0.9"),), "Docker's IPAM driver uses 10.22.0.9 as the gateway"),
    ],
)
def test_docker_s_addresses_may_be_others(pools: tuple[tuple[str, str | None], ...], what: str) -> None:
    """Without `-o cni.network` Docker made the network all the same; its containers are refused."""
    finding = only(with_pools(*pools))
    assert (finding.severity, finding.code, finding.subject) == (Severity.ERROR, "docker-pool", "Docker network shop")
    assert finding.text.startswith(what)
    assert finding.text.endswith("no container starts on it")
    assert finding.fix == "docker network rm shop; cni-bridge network create shop blue"


@pytest.mark.parametrize("ipam", [{"type": "dhcp"}, {"type": "static"}, {"type": "host-local", "ranges": 7}])
def test_docker_s_addresses_may_be_unknown_to_the_plugins(ipam: JsonObject) -> None:
    """Only the ranges of host-local are compared; those that cannot be parsed are found as a problem of the list."""
    facts = with_pools(("172.18.0.0/16", None))
    assert codes(replace(facts, networks=(configured({"type": "macvlan", "ipam": ipam}),))) == []
