# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`--mac-address` and the other options for a MAC: the link has that MAC, or the container does not start."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Container, Engine
from tests.system.scene import Scene, Subnet, bridge, macvlan, ptp, reaches, wait_logged

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


@pytest.mark.smoke
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.representatives("bridge", "capability")
def test_mac_address(scene: Scene, way: str) -> None:
    """The link has the MAC of `--mac-address`, whether a plugin or Docker sets it."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(WAYS[way](subnet)))
    container = scene.run(network, "--mac-address", MAC)
    assert container.link().mac == MAC
    assert container.endpoint(network).mac == MAC
    if way != "macvlan":
        assert reaches(container, subnet.gateway)


def test_a_mac_that_tuning_sets(scene: Scene) -> None:
    """IPv6 stays disabled on a link without it: the link-local address of the former MAC was not a plugin's."""
    plugins = [*ptp(scene.subnet()), {"type": "tuning"}]
    network = scene.network(scene.configure(plugins), "-o", "cni.attach=move")
    container = scene.run(network, "--mac-address", MAC)
    assert container.link().mac == MAC
    assert container.exec("cat", "/proc/sys/net/ipv6/conf/eth0/disable_ipv6").strip() == "1"


def macs(container: Container, *networks: str) -> list[str]:
    """Return a container's MACs on networks as Docker shows them, after comparing them with those of its links."""
    shown = [container.endpoint(network).mac for network in networks]
    assert sorted(shown) == sorted(link.mac for link in container.links())
    return shown


def of_macvlan(subnet: Subnet) -> Sequence[JsonObject]:
    """Return a macvlan with a MAC."""
    return ({**macvlan(subnet)[0], "mac": MAC},)


def of_bridge(subnet: Subnet) -> Sequence[JsonObject]:
    """Return a bridge with a MAC in its arguments."""
    main, *others = bridge(subnet)
    return {**main, "args": {"cni": {"mac": MAC}}}, *others


def of_tuning(subnet: Subnet) -> Sequence[JsonObject]:
    """Return a list whose last plugin sets a MAC."""
    return *ptp(subnet), {"type": "tuning", "mac": MAC}


@pytest.mark.parametrize("mode", ["move", "hybrid", "direct"])
@pytest.mark.parametrize("plugins", [of_macvlan, of_bridge, of_tuning])
@pytest.mark.representatives("of_bridge-move", "of_macvlan-direct")
def test_the_mac_that_the_list_gives(
    scene: Scene, engine: Engine, plugins: Callable[[Subnet], Sequence[JsonObject]], mode: str
) -> None:
    """The link has it in every mode, and Docker and cni-bridge show it; `--mac-address` goes before it."""
    if mode != "move" and engine.version < (28,):
        pytest.skip(f"Docker Engine {engine.name} makes the sandbox after Join, so plugins cannot run in it")
    network = scene.network(scene.configure(plugins(scene.subnet())), mode=mode)
    container = scene.run(network)
    assert container.link().mac == MAC
    assert container.endpoint(network).mac == MAC
    assert MAC in scene.lab.run("cni-bridge", "inspect", container.name).stdout
    done = scene.lab.run("cni-bridge", "inspect", "--check", container.name, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("sandbox_before_join")
def test_an_updater_that_hands_a_mac_back(scene: Scene) -> None:
    """The next container with the former one's address gets another MAC, also while none has that MAC."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet)), mode="hybrid")
    former = scene.run(network)
    address, mac = former.endpoint(network).addresses[0].ip, former.link().mac
    scene.lab.docker("rm", "--force", former.name)
    updated = scene.run(network, "--mac-address", mac)
    scene.lab.docker("stop", "-t", "0", updated.name)
    other = scene.run(f"name={network},driver-opt=cni.ips={address}")
    assert other.link().mac == other.endpoint(network).mac != mac
    scene.lab.docker("start", updated.name)
    assert updated.link().mac == mac
    assert all(reaches(container, subnet.gateway) for container in (other, updated))


def test_a_given_mac_that_a_link_has_already(scene: Scene) -> None:
    """The log says so, as Docker accepts it and both containers lose packets."""
    network, _ = scene.bridge_network()
    taken = scene.run(network, "--mac-address", MAC)
    scene.run(network, "--mac-address", MAC.upper())
    assert taken.endpoint(network).endpoint_id in wait_logged(scene.lab, "endpoint.mac_taken")


def test_a_mac_and_rules_against_spoofing(scene: Scene) -> None:
    """The rules of `bridge` are for the MAC that `tuning` sets; a list in which they are not is refused."""
    subnet = scene.subnet()
    main: JsonObject = {**bridge(subnet)[0], "macspoofchk": True}
    network = scene.network(scene.configure([main, {"type": "tuning", "capabilities": {"mac": True}}]))
    container = scene.run(network, "--mac-address", MAC)
    assert container.link().mac == MAC
    assert reaches(container, subnet.gateway)
    wrong = scene.configure([main, {"type": "tuning", "mac": MAC}])
    assert "leave out macspoofchk" in scene.creation_refusal("--ipam-driver=null", "-o", f"cni.network={wrong}")


@pytest.mark.engine_since("25", "has one MAC per network")
def test_a_mac_for_each_network(scene: Scene) -> None:
    """`--network name=N,mac-address=…` gives each endpoint a MAC of its own, also after a restart."""
    first, second = (scene.bridge_network()[0] for _ in range(2))
    container = scene.run(f"name={first},mac-address={MAC}", "--network", f"name={second},mac-address={OTHER}")
    assert macs(container, first, second) == [MAC, OTHER]
    scene.lab.docker("restart", "-t", "0", container.name)
    assert macs(container, first, second) == [MAC, OTHER]
