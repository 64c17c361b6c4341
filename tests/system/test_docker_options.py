# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's own options, `com.docker.network.*`: each has its effect, or is refused; and short ways to a network."""

import pytest

from spec import JsonObject
from tests.lab import Container, Engine, wait_until
from tests.system.scene import Scene, bridge, reaches

IPV4 = "com.docker.network.enable_ipv4"
IPV6 = "com.docker.network.enable_ipv6"
SYSCTLS = "com.docker.network.endpoint.sysctls"


def wait_setting(container: Container, path: str, value: str) -> None:
    """Wait until a setting is what it should be; before Engine 28 that is some milliseconds after the start."""
    wait_until(lambda: container.exec("cat", f"/proc/sys/net/ipv4/{path}") == value, f"{path} is {value}")


def check_network(scene: Scene, network: str, gateway: str) -> None:
    """See that containers on a network have what the plugins gave, and that Docker knows it."""
    first, second = scene.run(network), scene.run(network)
    for container in (first, second):
        (told,) = container.endpoint(network).addresses
        assert told in container.link().addresses
        assert reaches(container, gateway)
    assert container.ip("route", "show", "default")[0]["gateway"] == gateway
    assert reaches(first, second.name)  # Docker's DNS knows the name


@pytest.mark.smoke
def test_the_short_form(scene: Scene, engine: Engine) -> None:
    """From Engine 28 on `--ipv4=false` does what `--ipam-driver null` does; compose has `enable_ipv4: false`."""
    if engine.version < (28,):
        pytest.skip(f"engine {engine.name} has no --ipv4; 28 is the first that has")
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    network = scene.docker_network(name, "--ipv4=false")
    check_network(scene, network, subnet.gateway)
    check_network(scene, scene.docker_network(name, "-o", f"{IPV4}=false"), subnet.gateway)


@pytest.mark.smoke
def test_no_flag_at_all(private_scene: Scene, engine: Engine) -> None:
    """`default-network-opts` of daemon.json says it once for all networks, where the engine reads what it passes on."""
    if engine.version < (24,):
        pytest.skip(f"engine {engine.name} has no default-network-opts; 24 is the first that has")
    lab = private_scene.lab
    lab.write("/etc/docker/daemon.json", {"default-network-opts": {"cni-bridge": {IPV4: "false"}}})
    lab.restart_dockerd()
    subnet = private_scene.subnet()
    name = private_scene.configure(bridge(subnet))
    if engine.version < (28,):
        assert "make the network with --ipam-driver null" in private_scene.creation_refusal()
        return
    private_scene.shell(f"docker network create -d cni-bridge {name}")
    check_network(private_scene, name, subnet.gateway)


def test_families_as_options(scene: Scene, engine: Engine) -> None:
    """An engine that does not read these options would drop them; that is refused."""
    name = scene.configure(bridge(scene.subnet()))
    null = ("--ipam-driver=null", "-o", f"cni.network={name}")
    if engine.version < (28,):
        assert "make the network with --ipam-driver null" in scene.creation_refusal(*null, "-o", f"{IPV4}=false")
        said = scene.creation_refusal(*null, "-o", "com.docker.network.advertise_addr_nmsgs=0")
        assert "it announces no addresses" in said
    scene.run(scene.network(name, "-o", f"{IPV4}=true", "-o", f"{IPV6}=false"))
    assert "enable_ipv4" in scene.creation_refusal(*null, "-o", f"{IPV4}=perhaps")


@pytest.mark.smoke
def test_settings_of_the_link(scene: Scene) -> None:
    """They are honoured on every engine, of a container and as a network's default, and come over the plugins' own."""
    subnet = scene.subnet()
    tuning: JsonObject = {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.log_martians": "0"}}
    name = scene.configure([*bridge(subnet), tuning])
    network = scene.network(name, "-o", f"{SYSCTLS}=net.ipv4.conf.IFNAME.shared_media=0")
    default = scene.run(network)
    wanted = "net.ipv4.conf.IFNAME.log_martians=1,net.ipv4.neigh.IFNAME.app_solicit=3,net.ipv4.conf.IFNAME.arp_notify=0"
    own = scene.run(f'name={network},"driver-opt={SYSCTLS}={wanted}"')
    for container, values in (
        (default, {"conf/eth0/shared_media": "0", "conf/eth0/log_martians": "0", "conf/eth0/arp_notify": "1"}),
        (own, {"conf/eth0/log_martians": "1", "neigh/eth0/app_solicit": "3", "conf/eth0/arp_notify": "0"}),
    ):
        for path, value in values.items():
            wait_setting(container, path, value)
    wrong = ("-o", f"{SYSCTLS}=net.core.somaxconn=1")
    assert "NAME=VALUE" in scene.creation_refusal("--ipam-driver=null", "-o", f"cni.network={name}", *wrong)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("com.docker.network.endpoint.ifname=lan0", "cni.ifname-prefix"),
        ("com.docker.network.driver.mtu=1400", '"mtu"'),
        ("com.docker.network.bridge.name=br0", "driver bridge"),
    ],
)
def test_what_has_no_effect(scene: Scene, option: str, said: str) -> None:
    """It is refused, of a network and of a container, and nothing is left."""
    name = scene.configure(bridge(scene.subnet()))
    assert said in scene.creation_refusal("--ipam-driver=null", "-o", f"cni.network={name}", "-o", option)
    network = scene.network(name)
    before = scene.lab.state()
    assert said in scene.run_refusal(f"name={network},driver-opt={option}")
    assert scene.lab.wait_clean(before) == ""
