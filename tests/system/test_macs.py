# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`--mac-address` and the other options for a MAC: the link has that MAC, or the container does not start."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Container
from tests.system.scene import PREV_RESULT, Scene, Subnet, bridge, macvlan, ptp, reaches

MAC = "02:11:22:33:44:55"
OTHER = "02:11:22:33:44:66"


def with_capability(subnet: Subnet) -> Sequence[JsonObject]:
    """Return a bridge that receives the MAC in `runtimeConfig`."""
    main, *others = bridge(subnet)
    return {**main, "capabilities": {"mac": True}}, *others


WAYS: Mapping[str, Callable[[Subnet], Sequence[JsonObject]]] = {
    "capability": with_capability,
    "bridge": bridge,
    "macvlan": macvlan,
    "ptp": ptp,
}


@pytest.mark.parametrize("way", WAYS)
def test_mac_address(scene: Scene, way: str) -> None:
    """The link has the MAC of `--mac-address`, whether a plugin or Docker sets it."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(WAYS[way](subnet)))
    container = scene.run(network, "--mac-address", MAC)
    assert container.link().mac == MAC
    assert container.endpoint(network).mac == MAC
    if way != "macvlan":
        assert reaches(container, subnet.gateway)


def test_later_plugins_see_the_mac(scene: Scene) -> None:
    """A plugin that reads the link's MAC, as for a spoofing check, reads the requested one."""
    subnet = scene.subnet()
    scene.plugin(
        "witness",
        'input=$(cat); [ "$CNI_COMMAND" = ADD ] && { nsenter --net="$CNI_NETNS" ip link show eth0 >/run/witnessed; '
        f'printf \'%s\' "$input" | python3 -c "{PREV_RESULT}"; }}; exit 0',
    )
    network = scene.network(scene.configure([*bridge(subnet), {"type": "witness"}]))
    scene.run(network, "--mac-address", MAC)
    assert MAC in scene.lab.read("/run/witnessed")


def test_a_multicast_mac_is_refused(scene: Scene) -> None:
    """The error says that it is a multicast address, and nothing is left behind."""
    network, _ = scene.bridge_network()
    before = scene.lab.state()
    assert "is a multicast address" in scene.run_refusal(network, "--mac-address", "03:11:22:33:44:55")
    assert scene.lab.wait_clean(before) == ""


@pytest.mark.moves("a container in the host's PID namespace has no first process")
@pytest.mark.parametrize("options", [(), ("--pid=host",)], ids=["", "always moved"])
def test_a_plugin_that_ignores_its_mac_capability(scene: Scene, options: Sequence[str]) -> None:
    """A plugin that declares the capability `mac` and does not set the MAC is an error."""
    subnet = scene.subnet()
    scene.plugin("bridge", 'unset CNI_ARGS; sed \'s/"runtimeConfig"/"ignored"/\' | exec /usr/lib/cni/bridge')
    network = scene.network(scene.configure(with_capability(subnet)))
    before = scene.lab.state()
    assert "ignored the requested MAC" in scene.run_refusal(network, "--mac-address", MAC, *options)
    assert scene.lab.wait_clean(before) == ""


def macs(container: Container, *networks: str) -> list[str]:
    """Return a container's MACs on networks as Docker shows them, after comparing them with those of its links."""
    shown = [container.endpoint(network).mac for network in networks]
    assert sorted(shown) == sorted(link.mac for link in container.links())
    return shown


@pytest.mark.impossible("as mode direct demands", "direct")
@pytest.mark.engine_since("25", "has one MAC per network")
def test_a_mac_for_each_network(scene: Scene) -> None:
    """`--network name=N,mac-address=…` gives each endpoint a MAC of its own, also after a restart."""
    first, second = (scene.bridge_network()[0] for _ in range(2))
    container = scene.run(f"name={first},mac-address={MAC}", "--network", f"name={second},mac-address={OTHER}")
    assert macs(container, first, second) == [MAC, OTHER]
    scene.lab.docker("restart", "-t", "0", container.name)
    assert macs(container, first, second) == [MAC, OTHER]


@pytest.mark.impossible("as mode direct demands", "direct")
def test_a_containers_mac_and_two_networks(scene: Scene) -> None:
    """`--mac-address` applies to the network of `docker run` only, not to one that is connected later."""
    first, second = (scene.bridge_network()[0] for _ in range(2))
    container = scene.run(first, "--mac-address", MAC)
    scene.lab.docker("network", "connect", second, container.name)
    found, other = macs(container, first, second)
    assert found == MAC
    for _ in range(2):
        scene.lab.docker("restart", "-t", "0", container.name)
        assert macs(container, first, second)[0] == MAC
    del other
