# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's own options, `com.docker.network.*`, take effect or are refused; and networks without `--ipam-driver`."""

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Container, Engine, wait_until
from tests.system.scene import Scene, bridge, reaches

IPV4 = "com.docker.network.enable_ipv4"
SYSCTLS = "com.docker.network.endpoint.sysctls"


def wait_setting(container: Container, path: str, value: str) -> None:
    """Wait until a sysctl has a value; before Engine 28 that is some milliseconds after the start."""
    wait_until(lambda: container.exec("cat", f"/proc/sys/net/ipv4/{path}") == value, f"{path} is {value}")


def check_network(scene: Scene, network: str, gateway: str) -> None:
    """Assert that containers on a network have what the plugins gave them, and that Docker shows it."""
    first, second = scene.run(network), scene.run(network)
    for container in (first, second):
        (shown,) = container.endpoint(network).addresses
        assert shown in container.link().addresses
        assert reaches(container, gateway)
    assert container.ip("route", "show", "default")[0]["gateway"] == gateway
    assert reaches(first, second.name)  # Docker's DNS knows the name


@pytest.mark.engine_since("28", "has --ipv4")
@pytest.mark.smoke
def test_ipv4_false_replaces_the_null_ipam_driver(scene: Scene) -> None:
    """From Engine 28 on `--ipv4=false` does what `--ipam-driver null` does; compose has `enable_ipv4: false`."""
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    network = scene.docker_network(name, "--ipv4=false")
    check_network(scene, network, subnet.gateway)
    check_network(scene, scene.docker_network(name, "-o", f"{IPV4}=false"), subnet.gateway)


@pytest.mark.long
@pytest.mark.engine_since("24", "has default-network-opts")
@pytest.mark.smoke
def test_default_network_options_of_the_engine(private_scene: Scene, engine: Engine) -> None:
    """`default-network-opts` of daemon.json replaces `--ipam-driver null`; on an older engine the error names that."""
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


@pytest.mark.smoke
def test_sysctls_of_the_link(scene: Scene) -> None:
    """They are set on every engine, as a network's default or a container's own, and override those of the plugins."""
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


def test_options_of_other_tools_do_not_refuse_a_container(scene: Scene) -> None:
    """They have no effect, and are logged once; one that begins as ours is misspelt, and refused."""
    network, subnet = scene.bridge_network()
    options = ",".join(f"driver-opt={one}" for one in ("com.docker-py.setting=yes", f"{network}=value1"))
    for _ in range(2):
        assert reaches(scene.run(f"name={network},{options}"), subnet.gateway)
    assert scene.lab.daemon is not None
    logged = [line for line in scene.lab.daemon.log().splitlines() if "endpoint.option_unknown" in line]
    assert sum(network in line for line in logged) == 1
    assert "did you mean cni.ips?" in scene.run_refusal(f"name={network},driver-opt=cni.ip=10.0.0.9")
