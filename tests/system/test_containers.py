# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container on a CNI network, on a real Docker Engine with real plugins: what users do and see."""

import pytest

from cnm_bridge.core.settings import AttachOption
from tests.lab import Container
from tests.system.scene import LISTS, Scene, reaches


def assert_inspect_is_right(container: Container, network: str, link: str = "eth0") -> None:
    """Assert that `docker inspect` shows exactly what `ip addr` in the container shows."""
    inside = container.link(link)
    docker = container.endpoint(network)
    assert inside.is_up
    assert docker.addresses == inside.addresses
    assert docker.mac == inside.mac


@pytest.mark.smoke
@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.representatives("bridge dual stack", "macvlan dual stack")
def test_inspect_shows_what_ip_addr_shows(scene: Scene, kind: str) -> None:
    """For every kind of list the addresses and the MAC that Docker shows are those of the container's link."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(LISTS[kind](subnet)))
    container = scene.run(network)
    assert_inspect_is_right(container, network)
    families = [address.version for address in container.link().addresses]
    assert families == ([4, 6] if "dual" in kind else [4])


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.representatives("ptp", "macvlan dual stack")
def test_peers_and_gateway_answer(scene: Scene, kind: str) -> None:
    """Two containers of one network reach each other, and the gateway where the list makes one, in every family."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(LISTS[kind](subnet)))
    alice, bob = scene.run(network), scene.run(network)
    for address in bob.link().addresses:
        assert reaches(alice, str(address.ip))
    if "macvlan" not in kind:
        assert reaches(alice, subnet.gateway)
        assert not has_ipv6(alice) or reaches(alice, subnet.gateway_ipv6)


def has_ipv6(container: Container) -> bool:
    """Return whether the container has an IPv6 address."""
    return any(address.version == 6 for address in container.link().addresses)


@pytest.mark.smoke
def test_gateway_is_the_default_route(scene: Scene) -> None:
    """The gateway that Docker shows is the one that the container uses, in both families."""
    network, subnet = scene.bridge_network(ipv6=True)
    container = scene.run(network)
    assert [str(gateway) for gateway in container.endpoint(network).gateways] == [subnet.gateway, subnet.gateway_ipv6]
    (ipv4,) = container.ip("-4", "route", "show", "default")
    (ipv6,) = container.ip("-6", "route", "show", "default")
    assert (ipv4["gateway"], ipv6["gateway"]) == (subnet.gateway, subnet.gateway_ipv6)


def test_ptp_has_the_routes_that_ptp_made(scene: Scene) -> None:
    """A point-to-point link reaches its prefix only through the host: peers are not on the link."""
    subnet = scene.subnet()
    container = scene.run(scene.network(scene.configure(LISTS["ptp"](subnet))))
    routes = {(route["dst"], route.get("gateway")) for route in container.ip("-4", "route")}
    assert routes == {("default", subnet.gateway), (subnet.ipv4, subnet.gateway), (subnet.gateway, None)}


@pytest.mark.smoke
def test_connect_and_disconnect_while_running(scene: Scene) -> None:
    """A running container joins a second CNI network and leaves it again, twice."""
    first, _ = scene.bridge_network()
    second, _ = scene.bridge_network(ipv6=True)
    container, peer = scene.run(first), scene.run(second)
    for _ in range(2):
        scene.lab.docker("network", "connect", second, container.name)
        (added,) = (link.name for link in container.links() if link.name != "eth0")
        assert_inspect_is_right(container, second, added)
        assert reaches(container, str(peer.link().addresses[0].ip))
        scene.lab.docker("network", "disconnect", second, container.name)
        assert [link.name for link in container.links()] == ["eth0"]
    assert_inspect_is_right(container, first)


@pytest.mark.smoke
def test_beside_a_builtin_network(scene: Scene, attach: AttachOption) -> None:
    """A CNI network and one of Docker's own share a container, whichever comes first."""
    network, subnet = scene.bridge_network()
    builtin = scene.builtin_network()
    named = ("--driver-opt", "com.docker.network.endpoint.ifname=eth1") if attach is not AttachOption.MOVE else ()
    for first, second, options in ((network, builtin, named), (builtin, network, ())):
        container = scene.run(first)
        scene.lab.docker("network", "connect", *options, second, container.name)
        assert len(container.links()) == 2
        assert reaches(container, subnet.gateway)


def test_no_gateway_bridge_of_dockers_appears(scene: Scene) -> None:
    """Docker does not attach a container without a gateway to its `docker_gwbridge`."""
    network = scene.network(scene.configure(LISTS["bridge"](scene.subnet())), "--internal")
    container = scene.run(network)
    assert container.ip("-4", "route", "show", "default") == ()
    assert [str(gateway) for gateway in container.endpoint(network).gateways] == []
    assert "docker_gwbridge" not in scene.lab.docker("network", "ls", "--format", "{{.Name}}").split()


@pytest.mark.smoke
def test_nothing_of_the_daemon_is_visible(scene: Scene) -> None:
    """A container has no mount, file, descriptor or socket of the daemon, and no link of another container."""
    network, _ = scene.bridge_network()
    first, second = (scene.run(network) for _ in range(2))
    look = "cat /proc/mounts /proc/net/unix; ls -l /proc/1/fd; ls /run /run/docker/plugins /var/lib /etc/cni 2>&1; true"
    seen = first.exec("sh", "-c", look)
    assert "/proc" in seen
    assert not [line for line in seen.splitlines() if "cni" in line and "No such file" not in line]
    links = [container.exec("ls", "/sys/class/net").split() for container in (first, second)]
    assert links == [["eth0", "lo"], ["eth0", "lo"]]


def test_stop_start_restart(scene: Scene) -> None:
    """A container that starts again is on its network again, and each stop removes its attachment completely."""
    network, subnet = scene.bridge_network()
    container = scene.run(network)
    scene.lab.docker("stop", "-t", "0", container.name)
    scene.lab.docker("start", container.name)
    assert reaches(container, subnet.gateway)
    scene.lab.docker("restart", "-t", "0", container.name)
    assert reaches(container, subnet.gateway)
    assert_inspect_is_right(container, network)
    reservations = [path for path in scene.lab.state().reservations if subnet.gateway.rpartition(".")[0] in path]
    assert len(reservations) == 1


@pytest.mark.smoke
def test_a_bad_command_leaves_nothing(scene: Scene) -> None:
    """A container whose program does not exist is attached for a moment; that is undone."""
    network, _ = scene.bridge_network()
    before = scene.lab.state()
    scene.refusal("run", "--rm", "--net", network, "busybox", "/no/such/program")
    assert scene.lab.wait_clean(before) == ""


@pytest.mark.smoke
def test_many_containers_at_once(scene: Scene) -> None:
    """Eight containers that start at the same time have different addresses, and are removed completely."""
    network, _ = scene.bridge_network()
    before = scene.lab.state()
    script = f"for i in 1 2 3 4 5 6 7 8; do docker run -d --name many$i --net {network} busybox sleep 3600 & done; wait"
    scene.lab.run("sh", "-c", script)
    names = [f"many{number}" for number in range(1, 9)]
    addresses = {str(scene.lab.container(name).link().addresses[0]) for name in names}
    scene.lab.docker("rm", "-f", *names)
    assert len(addresses) == 8
    assert scene.lab.wait_clean(before) == ""
