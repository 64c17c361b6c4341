# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`--mac-address`, and the other ways to ask for one: the link has it, or nothing starts."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from spec import JsonObject
from tests.lab import Container, Engine
from tests.system.scene import PREV_RESULT, Scene, Subnet, bridge, macvlan, ptp, reaches

MAC = "02:11:22:33:44:55"
OTHER = "02:11:22:33:44:66"


def with_capability(subnet: Subnet) -> Sequence[JsonObject]:
    """Give a bridge that takes the MAC as `runtimeConfig`."""
    main, *others = bridge(subnet)
    return {**main, "capabilities": {"mac": True}}, *others


WAYS: Mapping[str, Callable[[Subnet], Sequence[JsonObject]]] = {
    "capability": with_capability,
    "bridge": bridge,
    "macvlan": macvlan,
    "ptp": ptp,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_mac(scene: Scene, way: str) -> None:
    """`--mac-address` is the link's, whether a plugin takes it or Docker gives it."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(WAYS[way](subnet)))
    container = scene.run(network, "--mac-address", MAC)
    assert container.link().mac == MAC
    assert container.endpoint(network).mac == MAC
    if way != "macvlan":
        assert reaches(container, subnet.gateway)


def test_plugins_see_the_mac(scene: Scene) -> None:
    """A plugin that pins what it sees, as MAC spoofing checks do, sees the one that was asked for."""
    subnet = scene.subnet()
    scene.plugin(
        "witness",
        'input=$(cat); [ "$CNI_COMMAND" = ADD ] && { nsenter --net="$CNI_NETNS" ip link show eth0 >/run/witnessed; '
        f'printf \'%s\' "$input" | python3 -c "{PREV_RESULT}"; }}; exit 0',
    )
    network = scene.network(scene.configure([*bridge(subnet), {"type": "witness"}]))
    scene.run(network, "--mac-address", MAC)
    assert MAC in scene.lab.read("/run/witnessed")


def test_a_groups_mac(scene: Scene) -> None:
    """A multicast address is no link's."""
    network, _ = scene.bridge_network()
    before = scene.lab.state()
    assert "is a multicast address" in scene.run_refusal(network, "--mac-address", "03:11:22:33:44:55")
    assert scene.lab.wait_clean(before) == ""


def test_a_plugin_that_ignores_the_mac(scene: Scene) -> None:
    """It declared that it would take it: an error, not a silence."""
    subnet = scene.subnet()
    scene.plugin("bridge", 'unset CNI_ARGS; sed \'s/"runtimeConfig"/"ignored"/\' | exec /usr/lib/cni/bridge')
    network = scene.network(scene.configure(with_capability(subnet)))
    before = scene.lab.state()
    assert "ignored the requested MAC" in scene.run_refusal(network, "--mac-address", MAC)
    assert scene.lab.wait_clean(before) == ""


def macs(container: Container, *networks: str) -> list[str]:
    """Give a container's MACs on networks as Docker shows them, which are those of its links."""
    shown = [container.endpoint(network).mac for network in networks]
    assert sorted(shown) == sorted(link.mac for link in container.links())
    return shown


def test_each_network_has_its_own(scene: Scene, engine: Engine) -> None:
    """`--network name=N,mac-address=…`: a MAC is an endpoint's."""
    if engine.version < (25,):
        pytest.skip(f"engine {engine.name} has one MAC for the whole container; 25 is the first that has more")
    first, second = (scene.bridge_network()[0] for _ in range(2))
    container = scene.run(f"name={first},mac-address={MAC}", "--network", f"name={second},mac-address={OTHER}")
    assert macs(container, first, second) == [MAC, OTHER]
    scene.lab.docker("restart", "-t", "0", container.name)
    assert macs(container, first, second) == [MAC, OTHER]


def test_a_containers_mac_and_two_networks(scene: Scene) -> None:
    """`--mac-address` is for the network that `docker run` names; another one that comes later is on its own."""
    first, second = (scene.bridge_network()[0] for _ in range(2))
    container = scene.run(first, "--mac-address", MAC)
    scene.lab.docker("network", "connect", second, container.name)
    found, other = macs(container, first, second)
    assert found == MAC
    for _ in range(2):
        scene.lab.docker("restart", "-t", "0", container.name)
        assert macs(container, first, second)[0] == MAC
    del other
