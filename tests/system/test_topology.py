# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Containers on several networks: which one is the gateway, and what stays while others come and go."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from cni_bridge_spec import JsonObject, find_int, get_str
from tests.lab import Container, LabError, wait_until
from tests.system.equivalence import assert_equivalent, run_directly, without, without_defaults
from tests.system.peer import HOST_IP, OUTSIDE_IP, outside
from tests.system.plugin_lists import (
    TUNING,
    commands,
    defaults,
    dual,
    ipv6_only,
    main,
    simple,
    static,
    v4,
    v6,
    write_wrapper,
)
from tests.system.scene import Scene, Subnet, bridge, reaches

Plugins = Sequence[JsonObject]


def without_gateway(subnet: Subnet) -> Plugins:
    """Return a list without a gateway."""
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": subnet.ipv4}]]}
    return ({"type": "macvlan", "master": Scene.UPLINK, "mode": "bridge", "ipam": ipam},)


def both_families(subnet: Subnet) -> Plugins:
    """Return a bridge with a default route in each family."""
    return bridge(subnet, ipv6=True)


def of_ipv6(subnet: Subnet) -> Plugins:
    """Return a bridge with IPv6 only."""
    return (ipv6_only(subnet),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Networks of one container, and which of them is the gateway.

    Attributes:
        networks: By their names: the function that makes a list for a subnet, None for Docker's own driver.
        ipv4: The network whose gateway the IPv4 default route uses, None for no default route.
        ipv6: The same for IPv6.
        internal: The networks with `--internal`.
    """

    networks: Mapping[str, Callable[[Subnet], Plugins] | None]
    ipv4: str | None
    ipv6: str | None = None
    internal: frozenset[str] = frozenset()


# libnetwork orders a container's endpoints: those of internal networks last, then those with more gateways first, then
# by the networks' names. The first has the default routes. From Engine 28 on it chooses for each family by itself.
TOPOLOGIES: Mapping[str, Topology] = {
    "the first name": Topology(networks={"aaa": bridge, "zzz": bridge}, ipv4="aaa"),
    "ours before Docker's": Topology(networks={"aaa": bridge, "zzz": None}, ipv4="aaa"),
    "Docker's before ours": Topology(networks={"aaa": None, "zzz": bridge}, ipv4="aaa"),
    "Docker's default bridge": Topology(networks={"bridge": None, "zzz": bridge}, ipv4="bridge"),
    "before Docker's default bridge": Topology(networks={"aaa": bridge, "bridge": None}, ipv4="aaa"),
    "three": Topology(networks={"aaa": bridge, "bbb": None, "ccc": bridge}, ipv4="aaa"),
    "more gateways": Topology(networks={"aaa": bridge, "bbb": None, "zzz": both_families}, ipv4="zzz", ipv6="zzz"),
    "the only gateway": Topology(networks={"aaa": without_gateway, "zzz": bridge}, ipv4="zzz"),
    "Docker's has the only gateway": Topology(networks={"aaa": without_gateway, "zzz": None}, ipv4="zzz"),
    "no gateway": Topology(networks={"aaa": without_gateway, "zzz": without_gateway}, ipv4=None),
    "one for each family": Topology(networks={"aaa": bridge, "zzz": of_ipv6}, ipv4="aaa", ipv6="zzz"),
    "IPv6 of Docker's neighbour": Topology(networks={"aaa": None, "zzz": of_ipv6}, ipv4="aaa", ipv6="zzz"),
    "internal": Topology(networks={"aaa": bridge, "zzz": bridge}, ipv4="zzz", internal=frozenset({"aaa"})),
    "all internal": Topology(
        networks={"aaa": bridge, "zzz": both_families}, ipv4=None, internal=frozenset({"aaa", "zzz"})
    ),
}


class Networks:
    """The networks of a topology, made on a scene."""

    def __init__(self, scene: Scene, topology: Topology) -> None:
        self._topology = topology
        self.names = tuple(topology.networks)
        for name, make in topology.networks.items():
            internal = ("--internal",) * (name in topology.internal)
            if make is not None:
                scene.network(scene.configure(make(scene.subnet())), *internal, name=name)
            elif name != "bridge":
                scene.builtin_network(*internal, name=name)

    def gateways_of(self, container: Container) -> set[str]:
        """Return the gateways that the container's default routes should have, as Docker shows them."""
        chosen = {4: self._topology.ipv4, 6: self._topology.ipv6}
        gateways = {
            str(gateway)
            for version, network in chosen.items()
            if network is not None
            for gateway in container.endpoint(network).gateways
            if gateway.version == version
        }
        assert len(gateways) == sum(network is not None for network in chosen.values())
        return gateways


def gateways_of(container: Container) -> set[str]:
    """Return the gateways of a container's default routes, the preferred one of each family."""
    found = [container.ip(family, "route", "show", "table", "all", "default") for family in ("-4", "-6")]
    assert len(found[0]) <= 1
    preferred = (min(routes, key=lambda route: find_int(route, "metric") or 0) for routes in found if routes)
    return {get_str(route, "gateway") for route in preferred}


def assert_gateways(container: Container, gateways: set[str]) -> None:
    """Assert that the container's default routes use these gateways, at the latest a moment after its start."""
    found: list[set[str]] = []

    def are_these() -> bool:
        found[:] = [gateways_of(container)]
        return found == [gateways]

    try:
        wait_until(are_these, "the gateways")
    except LabError:
        pytest.fail(f"the gateways are {found[0]}, not {gateways}")


@pytest.mark.parametrize("kind", TOPOLOGIES)
@pytest.mark.representatives("three", "Docker's before ours")
def test_the_gateway_at_the_start(scene: Scene, kind: str) -> None:
    """The default routes use the expected networks, and the neighbours on all networks are reachable."""
    networks = Networks(scene, TOPOLOGIES[kind])
    neighbours = [scene.run(name) for name in networks.names]
    first, *others = networks.names
    name = scene.create(first)
    for other in others:
        scene.lab.docker("network", "connect", other, name)
    scene.lab.docker("start", name)
    container = scene.lab.container(name)
    assert_gateways(container, networks.gateways_of(container))
    assert len(container.links()) == len(networks.names)
    for neighbour in neighbours:
        for address in neighbour.link().addresses:
            assert reaches(container, str(address.ip))
    assert "docker_gwbridge" not in scene.lab.docker("network", "ls", "--format", "{{.Name}}").split()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.smoke] * (kind == "one for each family")) for kind in TOPOLOGIES]
)
@pytest.mark.representatives("three", "one for each family")
def test_the_gateway_of_a_running_container(scene: Scene, kind: str, beside_ours: Sequence[str]) -> None:
    """It does not depend on the order in which networks are connected, disconnected and connected again."""
    networks = Networks(scene, TOPOLOGIES[kind])
    *others, last = networks.names
    container = scene.run(last)

    def connect(name: str) -> None:
        is_builtin = TOPOLOGIES[kind].networks[name] is None
        scene.lab.docker("network", "connect", *(beside_ours if is_builtin else ()), name, container.name)

    for other in others:
        connect(other)
    assert_gateways(container, networks.gateways_of(container))
    for name in networks.names:
        scene.lab.docker("network", "disconnect", name, container.name)
        connect(name)
        assert_gateways(container, networks.gateways_of(container))


@pytest.mark.engine_since("28", "has gateway priorities")
@pytest.mark.smoke
def test_gateway_priority(scene: Scene) -> None:
    """The network with the highest priority is the gateway, at the start and after another one was connected."""
    for name in ("aaa", "mmm", "zzz"):
        scene.network(scene.configure(bridge(scene.subnet())), name=name)
    container = scene.run("name=zzz,gw-priority=1", "--network", "aaa")
    assert_gateways(container, {str(gateway) for gateway in container.endpoint("zzz").gateways})
    scene.lab.docker("network", "connect", "--gw-priority", "2", "mmm", container.name)
    assert_gateways(container, {str(gateway) for gateway in container.endpoint("mmm").gateways})
    scene.lab.docker("network", "disconnect", "mmm", container.name)
    assert_gateways(container, {str(gateway) for gateway in container.endpoint("zzz").gateways})


@pytest.mark.parametrize("kind", ["bridge", "ptp", "macvlan"])
@pytest.mark.representatives("bridge")
def test_an_internal_network_has_no_gateway(scene: Scene, kind: str) -> None:
    """Although the list has a gateway and default routes in two tables, the container reaches no host outside."""
    subnet = scene.subnet()
    plugins = [main(kind, subnet, static(v4(subnet), v6(subnet), routes=defaults(4, 6))), {"type": "sbr"}]
    network = scene.network(scene.configure(plugins), "--internal")
    with outside(scene.lab) as there:
        # the other host has a route back, so that only the container's lack of a route explains a missing answer
        scene.lab.run(*there, "ip", "route", "add", "default", "via", HOST_IP)
        container = scene.run(network)
        assert container.endpoint(network).gateways == ()
        assert gateways_of(container) == set()
        assert not reaches(container, OUTSIDE_IP, seconds=1)
        assert not reaches(container, HOST_IP, seconds=1)
        open_network = scene.network(scene.configure([simple(scene.subnet(), kind=kind)]))
        assert gateways_of(scene.run(open_network))  # on a network that is not internal, the same list has a gateway


ORDERS = list(itertools.permutations(("tuned", "wrapped", "builtin")))


@pytest.mark.parametrize("order", [pytest.param(order, id=" ".join(order)) for order in ORDERS[::2]])
@pytest.mark.representatives("builtin tuned wrapped")
def test_networks_connected_in_any_order(scene: Scene, order: tuple[str, ...], beside_ours: Sequence[str]) -> None:
    """What plugins made for a network stays complete, whichever others come and go and whichever is the gateway."""
    subnets = {name: scene.subnet() for name in ("tuned", "wrapped")}
    write_wrapper(scene, commands(subnets["wrapped"]))
    tuning = {**TUNING, "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1", "net.ipv4.neigh.eth0.gc_stale_time": "99"}}
    lists: Mapping[str, Plugins] = {
        "tuned": [main("bridge", subnets["tuned"], static(v4(subnets["tuned"]), gateway=False)), tuning],
        "wrapped": [dual(subnets["wrapped"], kind="wrapper")],
    }
    wanted = {name: run_directly(scene.lab, scene.configure(plugins, name=name)) for name, plugins in lists.items()}
    for name in lists:
        scene.network(name, name=name)
    # with both families as well, so that its name, which is the first, makes it the gateway
    scene.builtin_network("--ipv6", "--subnet", scene.subnet().ipv6, name="builtin")
    home = scene.network(scene.configure([*bridge(scene.subnet())]), "--internal")
    container = scene.run(home)
    links: dict[str, str] = {}

    def assert_complete() -> None:
        gateway = min(("builtin", "wrapped") & links.keys(), default="")
        for name in wanted.keys() & links.keys():
            expected = wanted[name] if name == gateway else without_defaults(wanted[name])
            if name == "tuned":  # the other list sets the namespace's sysctls for good, and makes rules for a while
                expected = without(expected, "settings of the namespace", *(["rules"] if "wrapped" in links else []))
            assert_equivalent(scene.lab, container, expected, links[name])

    for name in order:
        before = {link.name for link in container.links()}
        scene.lab.docker("network", "connect", *(beside_ours if name == "builtin" else ()), name, container.name)
        (links[name],) = {link.name for link in container.links()} - before
        assert_complete()
    for name in order[1:] + order[:1]:
        scene.lab.docker("network", "disconnect", name, container.name)
        del links[name]
        assert_complete()


def test_overlapping_networks_are_refused(scene: Scene) -> None:
    """Docker refuses the second of two networks with one prefix; nothing of it is left, and the first is unchanged."""
    subnet = scene.subnet()
    first = scene.network(scene.configure(bridge(subnet)))
    second = scene.network(scene.configure(without_gateway(subnet)))
    container = scene.run(first)
    before = scene.lab.state()
    scene.refusal("network", "connect", second, container.name)
    assert scene.lab.wait_clean(before) == ""
    assert len(container.links()) == 1
    assert reaches(container, subnet.gateway)
