# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Published ports: from where they are reachable, which are chosen, who owns them, and what cannot publish them."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, find_str, get_object, get_objects, get_str
from tests.lab import CommandFailed, Container, Lab
from tests.system.calls import ask_status
from tests.system.peer import HOST_IP, ask, outside, serving
from tests.system.plugin_lists import PORTMAP
from tests.system.ports import port_network, published, with_ports
from tests.system.scene import Scene, Subnet, bridge, ptp

LS = (sys.executable, "-m", "cnm_bridge", "ls")


def log_of(scene: Scene, network: str) -> str:
    """Return the lines of the daemon's log about a network."""
    assert scene.lab.daemon is not None
    network_id = scene.lab.docker("network", "inspect", "--format", "{{.Id}}", network)
    return "\n".join(line for line in scene.lab.daemon.log().splitlines() if network_id in line)


def host_port(scene: Scene) -> int:
    """Return the port of the host that was published last."""
    return int(published(scene)[-1].partition("->")[0].rpartition(":")[2])


def hairpin_bridge(subnet: Subnet) -> Sequence[JsonObject]:
    """Return a bridge with hairpin mode: a container may reach itself through it."""
    main, *others = bridge(subnet)
    return {**main, "hairpinMode": True}, *others


@pytest.mark.parametrize("make", [hairpin_bridge, ptp])
def test_a_port_is_reachable_from_everywhere(scene: Scene, make: Callable[[Subnet], Sequence[JsonObject]]) -> None:
    """It is reachable from the host, another host, another container, and the container itself (hairpin)."""
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
@pytest.mark.representatives("udp", "sctp")
def test_protocols(scene: Scene, protocol: str) -> None:
    """A port is published for the given protocol."""
    network, _ = port_network(scene)
    container = scene.run(network, "-p", f"8081:81/{protocol}")
    assert published(scene) == [f"8081->81/{protocol}"]
    rules = scene.lab.run("iptables", "-t", "nat", "-S").stdout
    assert re.search(rf"-p {protocol} .*--dport 8081 .*DNAT --to-destination \S+:81$", rules, re.MULTILINE)
    if protocol == "sctp" and not has_sctp(scene):
        pytest.skip("the rule exists, but this kernel does not have SCTP, so nothing can be sent to the port")
    with outside(scene.lab) as there, serving(scene.lab, container, 81, protocol=protocol):
        assert ask(scene.lab, there, HOST_IP, 8081, protocol=protocol) == container.name


def has_sctp(scene: Scene) -> bool:
    """Return whether the kernel has SCTP."""
    script = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)"
    return scene.lab.run("python3", "-c", script, check=False).returncode == 0


def test_ipv6(scene: Scene) -> None:
    """A port is published for both families if the container has both, or on one IPv6 address."""
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
    """`-p IP:PORT:PORT` publishes on that address only; another container can publish the port on another address."""
    network, _ = port_network(scene)
    with outside(scene.lab) as there:
        near = scene.run(network, "-p", "127.0.0.1:8083:83")
        far = scene.run(network, "-p", f"{HOST_IP}:8083:83")
        with serving(scene.lab, near, 83), serving(scene.lab, far, 83):
            assert ask(scene.lab, None, "127.0.0.1", 8083) == near.name
            assert ask(scene.lab, there, HOST_IP, 8083) == far.name
        assert "8083" in scene.run_refusal(network, "-p", "8083:83")


def test_ranges(scene: Scene) -> None:
    """A range to a range publishes each port; a range to one port publishes the first free one."""
    network, _ = port_network(scene)
    scene.run(network, "-p", "8090-8092:90-92")
    assert sorted(published(scene)) == ["8090->90/tcp", "8091->91/tcp", "8092->92/tcp"]
    scene.run(network, "-p", "8092-8094:90")
    assert published(scene) == ["8093->90/tcp"]
    scene.run(network, "-p", "8092-8094:90")
    assert published(scene) == ["8094->90/tcp"]
    assert "no port of 8092-8094/tcp can be published" in scene.run_refusal(network, "-p", "8092-8094:90")


def test_random_ports(scene: Scene) -> None:
    """The daemon chooses free ports, all different, for `-P` and for `-p` without a host port."""
    network, _ = port_network(scene)
    container = scene.run(network, "-P", "--expose", "80", "--expose", "81/udp", "-p", "82")
    first = published(scene)
    assert {text.partition("->")[2] for text in first} == {"80/tcp", "81/udp", "82/tcp"}
    assert len({text.partition("->")[0] for text in first}) == len(first)
    port = next(int(text.partition("->")[0]) for text in first if text.endswith("80/tcp"))
    with serving(scene.lab, container, 80):
        assert ask(scene.lab, None, "127.0.0.1", port) == container.name


def test_what_shows_the_ports(scene: Scene) -> None:
    """`cni-bridge ls` does; Docker shows only what was asked for, as docs/tools.md says."""
    network, _ = port_network(scene)
    container = scene.run(network, "-p", "8099:80", "-p", "81", "--expose", "82")
    settings, config = (get_object(container.inspect(), part) for part in ("NetworkSettings", "HostConfig"))
    assert get_object(settings, "Ports") == {}
    asked = get_object(config, "PortBindings")
    assert {port: get_str(get_objects(asked, port)[0], "HostPort") for port in asked} == {
        "80/tcp": "8099",
        "81/tcp": "",
    }
    assert scene.lab.docker("port", container.name) == ""
    assert scene.lab.docker("ps", "--filter", f"name={container.name}", "--format", "{{.Ports}}") == ""
    shown = scene.lab.run(*LS).stdout
    (line,) = (line for line in shown.splitlines() if container.name in line)
    assert re.search(r"8099->80/tcp, \d+->81/tcp", line)


def test_ports_stay_while_the_gateway_changes(scene: Scene, beside_ours: Sequence[str]) -> None:
    """They are published only on the gateway's network, and are the same again when the gateway changes back."""
    network, _ = port_network(scene, name="zzz-ports")
    container = scene.run(network, "-p", "85")
    before, port = published(scene), host_port(scene)
    with outside(scene.lab) as there, ExitStack() as stack:
        stack.enter_context(serving(scene.lab, container, 85))
        builtin = scene.builtin_network()  # comes first by name: libnetwork makes it the gateway
        scene.lab.docker("network", "connect", *beside_ours, builtin, container.name)
        assert ask(scene.lab, there, HOST_IP, port) is None
        scene.lab.docker("network", "disconnect", builtin, container.name)
        assert published(scene) == before
        assert ask(scene.lab, there, HOST_IP, port) == container.name


@pytest.mark.parametrize("options", [(), ("-o", "cni.attach=move")], ids=["default", "move"])
@pytest.mark.representatives("default")
def test_a_container_does_not_wait_for_its_ports_at_its_end(scene: Scene, options: Sequence[str]) -> None:
    """The teardown removes them. The next container with the same port waits for that."""
    network = scene.network(scene.configure(with_ports(scene.subnet())), *options)
    assert scene.lab.daemon is not None
    log_length = len(scene.lab.daemon.log())
    for _ in range(3):
        scene.lab.docker("run", "--rm", "--network", network, "-p", "8087:87", "busybox", "true")
    events = [json.loads(line) for line in scene.lab.daemon.log()[log_length:].splitlines()]
    assert [event["event"] for event in events].count("endpoint.published") == 3
    assert "endpoint.ports_revoked" not in {event["event"] for event in events}
    container = scene.run(network, "-p", "8087:87")
    with serving(scene.lab, container, 87):
        assert ask(scene.lab, None, "127.0.0.1", 8087) == container.name


def test_a_container_that_keeps_running(scene: Scene) -> None:
    """Its ports are revoked before Docker continues, also while a process is in its sandbox after its own end."""
    network = scene.network(scene.configure(with_ports(scene.subnet())), "-o", "cni.attach=move")
    assert scene.lab.daemon is not None
    log_length = len(scene.lab.daemon.log())
    owner = scene.run(network, "-p", "8088:88")
    scene.lab.docker("network", "disconnect", network, owner.name)
    scene.lab.docker("network", "connect", network, owner.name)
    partner = scene.run(f"container:{owner.name}")
    scene.lab.docker("rm", "--force", owner.name)
    assert scene.lab.docker("exec", partner.name, "ls", "/sys/class/net").split() == ["lo"]
    lines = scene.lab.daemon.log()[log_length:].splitlines()
    events = [json.loads(line)["event"] for line in lines]
    assert [events.count(f"endpoint.{what}") for what in ("published", "ports_revoked")] == [2, 2]


@pytest.mark.usefixtures("sandbox_before_join")
def test_a_running_container_loses_its_ports_at_once(scene: Scene) -> None:
    """When it is disconnected, its ports are not reachable any more as soon as Docker says so."""
    network, _ = port_network(scene)
    container = scene.run(network, "-p", "8088:88")
    assert published(scene) == ["8088->88/tcp"]
    scene.lab.docker("network", "disconnect", network, container.name)
    assert "--dport 8088" not in scene.lab.run("iptables", "-t", "nat", "-S").stdout


@pytest.mark.parametrize("cni", ["aaa", "zzz"])
@pytest.mark.representatives("aaa")
def test_beside_a_builtin_network(scene: Scene, cni: str) -> None:
    """On a CNI network and one of Docker's, the gateway publishes the port, and the port is reachable."""
    network, _ = port_network(scene, name=cni)
    builtin = scene.builtin_network()
    name = scene.create(builtin, "-p", "8086:86")
    scene.lab.docker("network", "connect", network, name)
    scene.lab.docker("start", name)
    container = Container(scene.lab.namespaces, name)
    with outside(scene.lab) as there, serving(scene.lab, container, 86):
        assert ask(scene.lab, there, HOST_IP, 8086) == name


def test_a_list_that_cannot_publish(scene: Scene) -> None:
    """The container does not start, the error shows the plugin to add, and nothing is left behind."""
    network, _ = scene.bridge_network()
    before = scene.lab.state()
    error = scene.run_refusal(network, "-p", "8097:97")
    assert '{ "type": "portmap", "capabilities": { "portMappings": true } }' in error
    assert scene.lab.wait_clean(before) == ""


def test_an_internal_network(scene: Scene) -> None:
    """Docker publishes no port on an internal network; a warning is logged."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(with_ports(subnet)), "--internal")
    scene.run(network)
    assert "endpoint.no_gateway" not in log_of(scene, network)
    container = scene.run(network, "-p", "8099:99")
    assert "endpoint.no_gateway" in log_of(scene, network)
    with serving(scene.lab, container, 99):
        assert ask(scene.lab, None, "127.0.0.1", 8099) is None


def test_a_port_of_another_container(scene: Scene) -> None:
    """It is refused with the name of its owner, and is free when the owner is removed."""
    network, _ = port_network(scene)
    owner = scene.run(network, "-p", "8088:88")
    before = scene.lab.state()
    error = scene.run_refusal(network, "-p", "8088:89")
    assert f"port 8088/tcp cannot be published: it is already published for container {owner.name} (endpoint" in error
    assert owner.endpoint(network).endpoint_id not in error
    assert scene.lab.wait_clean(before) == ""
    with serving(scene.lab, owner, 88):
        assert ask(scene.lab, None, "127.0.0.1", 8088) == owner.name
    scene.run(network, "-p", "8088:88/udp")  # another protocol has its own
    scene.lab.docker("rm", "-f", owner.name)
    scene.run(network, "-p", "8088:88")


@pytest.mark.representatives("tcp")
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_port_of_a_program(scene: Scene, protocol: str) -> None:
    """A port on which a program of the host listens is refused."""
    network, _ = port_network(scene)
    with serving(scene.lab, None, 8089, protocol=protocol):
        before = scene.lab.state()
        assert "Address already in use; choose another port" in scene.run_refusal(network, "-p", f"8089:89/{protocol}")
        assert scene.lab.wait_clean(before) == ""
        assert ask(scene.lab, None, "127.0.0.1", 8089, protocol=protocol) == "host"


def test_a_port_of_dockers_own_network(scene: Scene) -> None:
    """A port that Docker itself has published is refused."""
    network, _ = port_network(scene)
    scene.run(scene.builtin_network(), "-p", "8095:95")
    error = scene.run_refusal(network, "-p", "8095:95")
    assert "Address already in use; choose another port" in error


def test_a_port_of_an_address_that_the_host_lacks(scene: Scene) -> None:
    """The error does not look for another port."""
    network, _ = port_network(scene)
    assert "choose an address that the host has" in scene.run_refusal(network, "-p", "203.0.113.7:8096:96")


STARTS: Final = 8
"""Docker joins the networks of a container in random order."""


def not_published(lab: Lab) -> list[str]:
    """Return the reasons why ports are not published, as `cni-bridge status` shows them."""
    endpoints = get_objects(ask_status(lab), "endpoints")
    return [get_str(endpoint, "notPublished") for endpoint in endpoints if find_str(endpoint, "notPublished")]


def container_on_two(scene: Scene, port_publisher: str, other: str, port: int) -> str:
    """Make a container with a port on two networks, the second of which cannot publish; return its name."""
    first = scene.network(scene.configure([*bridge(scene.subnet()), PORTMAP]), name=port_publisher)
    second = scene.network(scene.configure(bridge(scene.subnet())), name=other)
    name = scene.create(first, "-p", f"{port}:80")
    scene.lab.docker("network", "connect", second, name)
    return name


def test_the_gateway_can_publish(scene: Scene) -> None:
    """The container's port is reachable after every start."""
    name = container_on_two(scene, "aaa-publishes", "zzz-does-not", 8501)
    with outside(scene.lab) as there:
        for _ in range(STARTS):
            scene.lab.docker("start", name)
            container = scene.lab.container(name)
            assert not_published(scene.lab) == []
            with serving(scene.lab, container, 80):
                assert ask(scene.lab, there, HOST_IP, 8501) == name
            scene.lab.docker("stop", "--time", "0", name)


@pytest.mark.long
def test_the_gateway_cannot_publish(scene: Scene) -> None:
    """The container starts all the same; log and status show which ports are not published, and why."""
    name = container_on_two(scene, "zzz-publishes", "aaa-does-not", 8502)
    for _ in range(STARTS):
        scene.lab.docker("start", name)
        (reason,) = not_published(scene.lab)
        assert "has no plugin after its first with the capability portMappings" in reason
        assert "PORTS NOT PUBLISHED  NETWORK" in scene.lab.run("cni-bridge", "status").stdout
        scene.lab.docker("stop", "--time", "0", name)
        assert not_published(scene.lab) == []
    assert scene.lab.daemon is not None
    assert "endpoint.ports_not_published" in scene.lab.daemon.log()


def test_with_a_network_of_dockers_bridge_driver(scene: Scene) -> None:
    """Docker's bridge driver publishes the port, even if the CNI network is joined first."""
    builtin = scene.builtin_network(name="aaa-builtin")
    other = scene.network(scene.configure(bridge(scene.subnet())), name="zzz-ours")
    name = scene.create(other, "-p", "8503:80")
    scene.lab.docker("network", "connect", builtin, name)
    with outside(scene.lab) as there:
        for _ in range(STARTS // 2):
            scene.lab.docker("start", name)
            with serving(scene.lab, scene.lab.container(name), 80):
                assert ask(scene.lab, there, HOST_IP, 8503) == name
            scene.lab.docker("stop", "--time", "0", name)


def test_a_running_container_that_joins_a_network_that_cannot(scene: Scene) -> None:
    """The ports move to the network that libnetwork chooses; status shows when that one cannot publish them."""
    port_publisher = scene.network(scene.configure([*bridge(scene.subnet()), PORTMAP]), name="zzz-moves")
    other = scene.network(scene.configure(bridge(scene.subnet())), name="aaa-moves")
    container = scene.run(port_publisher, "-p", "8504:80")
    with outside(scene.lab) as there, serving(scene.lab, container, 80):
        scene.lab.docker("network", "connect", other, container.name)
        assert len(not_published(scene.lab)) == 1
        scene.lab.docker("network", "disconnect", other, container.name)
        assert not_published(scene.lab) == []
        assert ask(scene.lab, there, HOST_IP, 8504) == container.name


def test_ports_that_the_only_network_cannot_publish(scene: Scene) -> None:
    """If no network can publish the ports, the container does not start, by whichever name the network was given."""
    network, _ = scene.bridge_network()
    network_id = scene.lab.docker("network", "inspect", "--format", "{{.Id}}", network)
    for name in (network, network_id, network_id[:12]):
        before = scene.lab.state()
        assert "ports cannot be published" in scene.run_refusal(name, "-p", "8505:80")
        assert scene.lab.wait_clean(before) == ""
    configuration = scene.configure(bridge(scene.subnet()))
    network = scene.network(configuration)
    container = scene.create(network, "-p", "8506:80")
    with pytest.raises(CommandFailed, match="ports cannot be published"):
        scene.lab.docker("start", container)
    names = "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}"
    assert scene.lab.docker("inspect", "--format", names, container).split() == [network]
    scene.configure([*bridge(scene.subnet()), PORTMAP], name=configuration)
    scene.lab.docker("start", container)
