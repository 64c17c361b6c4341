# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Published ports: who reaches them, which are chosen, and whose they are."""

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest

from spec import JsonObject
from tests.lab import CommandFailed, Container, wait_until
from tests.system.peer import HOST_IP, ask, outside, serving
from tests.system.scene import Scene, Subnet, bridge, ptp

PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}


def with_ports(subnet: Subnet, *, ipv6: bool = False) -> Sequence[JsonObject]:
    """Give a bridge that publishes ports."""
    return (*bridge(subnet, ipv6=ipv6), PORTMAP)


def port_network(scene: Scene, *, ipv6: bool = False, name: str | None = None) -> tuple[str, Subnet]:
    """Make a network that publishes ports."""
    subnet = scene.subnet()
    return scene.network(scene.configure(with_ports(subnet, ipv6=ipv6)), name=name), subnet


def published(scene: Scene) -> list[str]:
    """Give what the daemon's log says was published last, e.g. `8080->80/tcp`."""
    assert scene.lab.daemon is not None
    lines = [line for line in scene.lab.daemon.tail(2000).splitlines() if "endpoint.published" in line]
    return re.findall(r"[\d.:\[\]a-f]+->\d+/[a-z]+", lines[-1])


def said(scene: Scene, network: str) -> str:
    """Give what the daemon has said about a network."""
    assert scene.lab.daemon is not None
    network_id = scene.lab.docker("network", "inspect", "--format", "{{.Id}}", network)
    return "\n".join(line for line in scene.lab.daemon.log().splitlines() if network_id in line)


def host_port(scene: Scene) -> int:
    """Give the port of the host that was published last."""
    return int(published(scene)[-1].partition("->")[0].rpartition(":")[2])


def hairpin_bridge(subnet: Subnet) -> Sequence[JsonObject]:
    """Give a bridge that sends packets back where they came from: a container may reach itself through it."""
    main, *others = bridge(subnet)
    return {**main, "hairpinMode": True}, *others


@pytest.mark.parametrize("make", [hairpin_bridge, ptp])
def test_reached_from_everywhere(scene: Scene, make: Callable[[Subnet], Sequence[JsonObject]]) -> None:
    """From the host, from another host, from another container, and from the container itself (hairpin)."""
    network = scene.network(scene.configure([*make(scene.subnet()), PORTMAP]))
    with outside(scene.lab) as there:
        container = scene.run(network, "-p", "8080:80")
        neighbour = scene.run(network)
        with serving(scene.lab, container, 80):
            assert ask(scene.lab, None, "127.0.0.1", 8080) == container.name
            assert ask(scene.lab, None, HOST_IP, 8080) == container.name
            assert ask(scene.lab, there, HOST_IP, 8080) == container.name
            assert ask(scene.lab, neighbour, HOST_IP, 8080) == container.name
            assert ask(scene.lab, container, HOST_IP, 8080) == container.name
        scene.lab.docker("rm", "-f", container.name)
        assert ask(scene.lab, there, HOST_IP, 8080) is None


@pytest.mark.parametrize("protocol", ["tcp", "udp", "sctp"])
def test_protocols(scene: Scene, protocol: str) -> None:
    """Each protocol has ports of its own."""
    network, _ = port_network(scene)
    container = scene.run(network, "-p", f"8081:81/{protocol}")
    assert published(scene) == [f"8081->81/{protocol}"]
    rules = scene.lab.run("iptables", "-t", "nat", "-S").stdout
    assert re.search(rf"-p {protocol} .*--dport 8081 .*DNAT --to-destination \S+:81$", rules, re.MULTILINE)
    if protocol == "sctp" and not has_sctp(scene):
        return  # the kernel cannot speak it; the rule is there all the same
    with outside(scene.lab) as there, serving(scene.lab, container, 81, protocol=protocol):
        assert ask(scene.lab, there, HOST_IP, 8081, protocol=protocol) == container.name


def has_sctp(scene: Scene) -> bool:
    """Tell whether the kernel has SCTP."""
    script = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)"
    return scene.lab.run("python3", "-c", script, check=False).returncode == 0


def test_ipv6(scene: Scene) -> None:
    """A port is published for both families where the container has both, or on one address of IPv6."""
    network, _ = port_network(scene, ipv6=True)
    with outside(scene.lab) as there:
        scene.lab.run("ip", "address", "add", "2001:db8::1/64", "dev", "wire0", "nodad")
        scene.lab.run(*there, "ip", "address", "add", "2001:db8::2/64", "dev", "eth0", "nodad")
        container = scene.run(network, "-p", "8082:82")
        with serving(scene.lab, container, 82, ipv6=True):
            assert ask(scene.lab, there, "2001:db8::1", 8082) == container.name
            assert ask(scene.lab, there, HOST_IP, 8082) == container.name
        other = scene.run(network, "-p", "[2001:db8::1]:8111:82")
        with serving(scene.lab, other, 82, ipv6=True):
            assert ask(scene.lab, there, "2001:db8::1", 8111) == other.name
            assert ask(scene.lab, there, HOST_IP, 8111) is None


def test_a_host_address(scene: Scene) -> None:
    """`-p IP:PORT:PORT` publishes on that address alone, so that another container can have the other."""
    network, _ = port_network(scene)
    with outside(scene.lab) as there:
        near = scene.run(network, "-p", "127.0.0.1:8083:83")
        far = scene.run(network, "-p", f"{HOST_IP}:8083:83")
        with serving(scene.lab, near, 83), serving(scene.lab, far, 83):
            assert ask(scene.lab, None, "127.0.0.1", 8083) == near.name
            assert ask(scene.lab, there, HOST_IP, 8083) == far.name
        assert "8083" in scene.run_refusal(network, "-p", "8083:83")


def test_an_address_that_the_host_does_not_have(scene: Scene) -> None:
    """As Docker's own bridge does, it is refused."""
    network, _ = port_network(scene)
    before = scene.lab.state()
    assert "203.0.113.9:8084/tcp" in scene.run_refusal(network, "-p", "203.0.113.9:8084:84")
    assert scene.lab.wait_clean(before) == ""


def test_ranges(scene: Scene) -> None:
    """A range for a range is one port for each; a range for one port is the first that is free."""
    network, _ = port_network(scene)
    scene.run(network, "-p", "8090-8092:90-92")
    assert sorted(published(scene)) == ["8090->90/tcp", "8091->91/tcp", "8092->92/tcp"]
    scene.run(network, "-p", "8092-8094:90")
    assert published(scene) == ["8093->90/tcp"]
    scene.run(network, "-p", "8092-8094:90")
    assert published(scene) == ["8094->90/tcp"]
    assert "no port of 8092-8094/tcp can be published" in scene.run_refusal(network, "-p", "8092-8094:90")


def test_random_ports(scene: Scene) -> None:
    """Ports that we choose are free, different, and stay the same while the container lives."""
    network, _ = port_network(scene)
    container = scene.run(network, "-P", "--expose", "80", "--expose", "81/udp", "-p", "82")
    first = published(scene)
    assert {text.partition("->")[2] for text in first} == {"80/tcp", "81/udp", "82/tcp"}
    assert len({text.partition("->")[0] for text in first}) == len(first)
    port = next(int(text.partition("->")[0]) for text in first if text.endswith("80/tcp"))
    with serving(scene.lab, container, 80):
        assert ask(scene.lab, None, "127.0.0.1", port) == container.name


def test_ports_stay_while_the_gateway_changes(scene: Scene) -> None:
    """They move with the gateway, as with Docker's own networks, and come back as they were."""
    network, _ = port_network(scene, name="zzz-ports")
    container = scene.run(network, "-p", "85")
    before, port = published(scene), host_port(scene)
    with outside(scene.lab) as there, ExitStack() as stack:
        stack.enter_context(serving(scene.lab, container, 85))
        builtin = scene.builtin_network()  # comes first by name: libnetwork makes it the gateway
        scene.lab.docker("network", "connect", builtin, container.name)
        assert ask(scene.lab, there, HOST_IP, port) is None
        scene.lab.docker("network", "disconnect", builtin, container.name)
        assert published(scene) == before
        assert ask(scene.lab, there, HOST_IP, port) == container.name


@pytest.mark.parametrize("cni", ["aaa", "zzz"])
def test_beside_a_builtin_network(scene: Scene, cni: str) -> None:
    """On two networks, the gateway publishes, and the port is reached."""
    network, _ = port_network(scene, name=cni)
    builtin = scene.builtin_network()
    name = scene.create(builtin, "-p", "8086:86")
    scene.lab.docker("network", "connect", network, name)
    scene.lab.docker("start", name)
    container = Container(scene.lab.namespaces, name)
    with outside(scene.lab) as there, serving(scene.lab, container, 86):
        assert ask(scene.lab, there, HOST_IP, 8086) == name


def test_two_networks_of_ours(scene: Scene) -> None:
    """A container publishes once, also where both its networks could."""
    first, _ = port_network(scene)
    second, _ = port_network(scene)
    name = scene.create(first, "-p", "8087:87")
    scene.lab.docker("network", "connect", second, name)
    scene.lab.docker("start", name)
    container = Container(scene.lab.namespaces, name)
    with outside(scene.lab) as there, serving(scene.lab, container, 87):
        assert ask(scene.lab, there, HOST_IP, 8087) == name
    for _ in range(2):  # whichever was the gateway
        for network in (first, second):
            scene.lab.docker("network", "disconnect", network, name)
            scene.lab.docker("network", "connect", network, name)
    with outside(scene.lab) as there, serving(scene.lab, container, 87):
        assert ask(scene.lab, there, HOST_IP, 8087) == name


def test_anothers_port(scene: Scene) -> None:
    """A port that another container has is refused by name, and nothing of it changes; then it is free again."""
    network, _ = port_network(scene)
    owner = scene.run(network, "-p", "8088:88")
    before = scene.lab.state()
    said = scene.run_refusal(network, "-p", "8088:89")
    assert "port 8088/tcp cannot be published: it is published for endpoint" in said
    assert owner.endpoint(network).endpoint_id in said
    assert scene.lab.wait_clean(before) == ""
    with serving(scene.lab, owner, 88):
        assert ask(scene.lab, None, "127.0.0.1", 8088) == owner.name
    scene.run(network, "-p", "8088:88/udp")  # another protocol has its own
    scene.lab.docker("rm", "-f", owner.name)
    scene.run(network, "-p", "8088:88")


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_programs_port(scene: Scene, protocol: str) -> None:
    """A port that a program of the host listens on is not taken from it."""
    network, _ = port_network(scene)
    with serving(scene.lab, None, 8089, protocol=protocol):
        before = scene.lab.state()
        assert "Address already in use" in scene.run_refusal(network, "-p", f"8089:89/{protocol}")
        assert scene.lab.wait_clean(before) == ""
        assert ask(scene.lab, None, "127.0.0.1", 8089, protocol=protocol) == "host"


def test_a_port_of_dockers_own_network(scene: Scene) -> None:
    """What Docker itself has published is not taken from it."""
    network, _ = port_network(scene)
    scene.run(scene.builtin_network(), "-p", "8095:95")
    assert "Address already in use" in scene.run_refusal(network, "-p", "8095:95")


def test_the_same_port_twice(scene: Scene) -> None:
    """One port cannot lead to two."""
    network, _ = port_network(scene)
    assert "published twice" in scene.run_refusal(network, "-p", "8096:96", "-p", "8096:97")


def test_a_list_that_cannot(scene: Scene) -> None:
    """A list without the capability says which plugin to add, and leaves nothing."""
    network, _ = scene.bridge_network()
    before = scene.lab.state()
    said = scene.run_refusal(network, "-p", "8097:97")
    assert '{ "type": "portmap", "capabilities": { "portMappings": true } }' in said
    assert scene.lab.wait_clean(before) == ""


@pytest.mark.parametrize(
    ("end", "told"),
    [("""echo '{"code": 100, "msg": "no luck"}'; exit 1""", "no luck"), ("kill -KILL $$", "killed by SIGKILL")],
    ids=["it says why", "it is killed whenever it publishes"],
)
def test_a_plugin_that_fails_to_publish(scene: Scene, end: str, told: str) -> None:
    """What happened first is the answer, it is not tried for ever; nothing is left, the port is free again."""
    scene.plugin(
        "portmap",
        f'input=$(cat); case "$CNI_COMMAND$input" in ADD*hostPort*) {end};; esac; '
        'printf "%s" "$input" | exec /usr/lib/cni/portmap',
    )
    network, _ = port_network(scene)
    before = scene.lab.state()
    assert told in scene.run_refusal(network, "-p", "8098:98")
    assert scene.lab.wait_clean(before) == ""
    scene.lab.remove("/opt/cni/bin/portmap")
    scene.run(network, "-p", "8098:98")


def test_a_plugin_that_is_killed_while_the_gateway_changes(scene: Scene) -> None:
    """It runs again: Docker only logs what goes wrong there, and the container would have lost its port."""
    once = "/run/portmap-dies-once"
    scene.plugin(
        "portmap",
        'input=$(cat); printf "%s" "$input" | /usr/lib/cni/portmap; ended=$?; case "$CNI_COMMAND$input" in '
        f'ADD*hostPort*) rm {once} 2>/dev/null && kill -KILL $$;; esac; exit "$ended"',
    )
    network, _ = port_network(scene, name="zzz-killed")
    container = scene.run(network, "-p", "8100:80")
    builtin = scene.builtin_network()
    scene.lab.docker("network", "connect", builtin, container.name)
    scene.lab.write(once, "")
    with outside(scene.lab) as there, serving(scene.lab, container, 80):
        scene.lab.docker("network", "disconnect", builtin, container.name)
        assert not scene.lab.path(once).exists()
        assert ask(scene.lab, there, HOST_IP, 8100) == container.name


def test_many_ports_take_their_time(private_scene: Scene) -> None:
    """Who publishes them has more time than other plugins, for ADD and DEL: `portmap` needs some for each port."""
    scene = private_scene
    scene.lab.stop_daemon()
    scene.lab.start_daemon("--plugin-timeout", "2")
    scene.plugin(
        "portmap",
        'input=$(cat); case "$input" in *hostPort*) sleep 3;; esac; printf "%s" "$input" | exec /usr/lib/cni/portmap',
    )
    network, _ = port_network(scene)
    before = scene.lab.state()
    container = scene.run(network, "-p", "8520-8535:20-35")
    assert len(published(scene)) == 16
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before, 30) == ""
    assert scene.lab.daemon is not None
    assert "within" not in scene.lab.daemon.log()


def test_a_network_without_way_out(scene: Scene) -> None:
    """On an internal network Docker publishes nothing, here as elsewhere; the log says so."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(with_ports(subnet)), "--internal")
    scene.run(network)
    assert "endpoint.no_gateway" not in said(scene, network)
    container = scene.run(network, "-p", "8099:99")
    assert "endpoint.no_gateway" in said(scene, network)
    with serving(scene.lab, container, 99):
        assert ask(scene.lab, None, "127.0.0.1", 8099) is None


def test_another_daemon_knows_whose_ports_are_whose(private_scene: Scene) -> None:
    """A daemon that was killed knows them again, and removes them with their container."""
    scene = private_scene
    network, _ = port_network(scene)
    before = scene.lab.state()
    owner = scene.run(network, "-p", "8100:100")
    scene.lab.restart_daemon(9)
    assert "it is published for endpoint" in scene.run_refusal(network, "-p", "8100:100")
    scene.lab.docker("rm", "-f", owner.name)
    assert scene.lab.wait_clean(before) == ""
    scene.run(network, "-p", "8100:100")


def test_a_portmap_that_a_killed_daemon_has_left_behind(private_scene: Scene) -> None:
    """It was publishing ports. It is ended: else it would add its rules beside, or after, those of what comes next."""
    scene = private_scene
    lab = scene.lab
    scene.plugin(
        "portmap",
        'input=$(cat); case "$CNI_COMMAND$input" in ADD*hostPort*) echo $$ >/run/portmap-runs; '
        "while [ -e /run/gate ]; do sleep 0.05; done;; esac; "
        'printf "%s" "$input" | exec /usr/lib/cni/portmap',
    )
    network, _ = port_network(scene)
    lab.write("/run/gate", "")
    before = lab.state()
    name = scene.create(network, "-p", "8110:110")
    lab.spawn("docker", "start", name)
    wait_until(lambda: lab.path("/run/portmap-runs").exists(), "portmap to publish")
    lab.restart_daemon(9)
    with pytest.raises(CommandFailed):
        lab.run("sh", "-c", f"kill -0 {lab.read('/run/portmap-runs')}")
    lab.remove("/run/gate")
    lab.docker("rm", "-f", name)
    lab.remove("/run/portmap-runs")
    assert lab.wait_clean(before, 30) == ""
