# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Addresses from the LAN's DHCP server, by the CNI project's plugin and daemon (Engine 28 and newer)."""

from collections.abc import Iterator

import pytest

from cni_bridge_spec import JsonObject, get_int, get_objects, get_str
from tests.lab import Container, Lab, Plugins, known_plugins, wait_until
from tests.system.calls import ask_status, wait_torn_down
from tests.system.dhcp_lan import DHCP_SOCKET, Lan
from tests.system.scene import Scene, reaches

SANDBOX = ("-o", "cni.attach=sandbox")
IPAM: JsonObject = {"type": "dhcp"}
NO_LEASE = "IPAM plugin dhcp: no DHCP server gave an address"
MACVLAN: JsonObject = {"type": "macvlan", "master": Scene.UPLINK, "mode": "bridge", "ipam": IPAM}


pytestmark = pytest.mark.usefixtures("sandbox_before_join")


@pytest.fixture(name="lan")
def make_lan(private_scene: Scene, cni_plugins: Plugins | None) -> Iterator[Lan]:
    """A LAN without a server yet; the CNI DHCP daemon does not run."""
    version = (cni_plugins or known_plugins()[0]).version
    lan = Lan(private_scene.lab, private_scene.subnet(), loses_release=(1, 6) <= version <= (1, 9, 1))
    yield lan
    lan.close()


def address(container: Container) -> str:
    """Return the address of a container's only link, without its prefix."""
    (found,) = container.link().addresses
    return str(found.ip)


def lost(lab: Lab) -> list[str]:
    """Return why endpoints have no lease."""
    return [
        get_str(one, "error") for daemon in get_objects(ask_status(lab), "dhcp") for one in get_objects(daemon, "lost")
    ]


@pytest.mark.representatives("bridge")
@pytest.mark.parametrize("kind", ["macvlan", "bridge"])
def test_a_lease_of_the_lan(private_scene: Scene, lan: Lan, kind: str) -> None:
    """The container has the server's address and gateway; when it is removed, the lease is released."""
    scene = private_scene
    lan.start_daemon()
    if kind == "bridge":
        main: JsonObject = {"type": "bridge", "bridge": lan.subnet.bridge, "ipam": IPAM}
        scene.lab.run("ip", "link", "add", lan.subnet.bridge, "type", "bridge")
        scene.lab.run("ip", "link", "set", lan.subnet.bridge, "up")
        scene.lab.run("ip", "link", "set", Scene.UPLINK, "master", lan.subnet.bridge)
        # Docker's policy of FORWARD is DROP, and where br_netfilter is loaded it holds for bridged packets, too
        scene.lab.run(*f"iptables -I DOCKER-USER -i {lan.subnet.bridge} -o {lan.subnet.bridge} -j ACCEPT".split())
    else:
        main = MACVLAN
    lan.start_server()
    container = scene.run(scene.network(scene.configure([main]), *SANDBOX))
    leased = address(container)
    assert lan.leases() == [leased]
    assert f"default via {lan.subnet.gateway}" in container.in_network("ip", "route").stdout
    assert reaches(container, lan.subnet.gateway)
    scene.lab.docker("rm", "-f", container.name)
    lan.wait_released(leased)
    if kind == "bridge":
        scene.lab.run("ip", "link", "del", lan.subnet.bridge)
        scene.lab.run(*f"iptables -D DOCKER-USER -i {lan.subnet.bridge} -o {lan.subnet.bridge} -j ACCEPT".split())


def test_the_same_address_after_a_restart(private_scene: Scene, lan: Lan) -> None:
    """The server knows the container by its client identifier again, although others have come in between."""
    scene = private_scene
    lan.start_daemon()
    lan.start_server()
    network = scene.network(scene.configure([MACVLAN]), *SANDBOX)
    scene.run(network)
    named = f"name={network},driver-opt=cni.dhcp.client-id=web"
    container = scene.run(named)
    before = address(container)
    scene.lab.docker("restart", "-t", "0", container.name)
    assert address(container) == before
    error = scene.run_refusal(named)
    assert "has the same DHCP client identifier" in error


@pytest.mark.long
def test_an_outage_of_the_daemon(private_scene: Scene, lan: Lan) -> None:
    """A container starts as soon as the daemon is back, however long its DEL has failed; before, the error says why."""
    scene = private_scene
    lab = scene.lab
    lan.start_daemon()
    lan.start_server()
    network = scene.network(scene.configure([MACVLAN]), *SANDBOX)
    named = f"name={network},driver-opt=cni.dhcp.client-id=web"
    container = scene.run(named)
    before = address(container)
    lan.stop_daemon()
    lab.docker("rm", "-f", container.name)
    error = scene.run_refusal(named)
    assert "the DHCP client identifier is not free yet" in error
    assert "plugin macvlan has not completed its DEL" in error
    assert DHCP_SOCKET in error

    def attempts() -> int:
        (pending,) = get_objects(ask_status(lab), "pendingTeardowns")
        return get_int(pending, "attempts")

    # The pauses are a second, two and four.
    wait_until(lambda: attempts() > 2, "three attempts")
    lan.start_daemon()
    assert address(scene.run(named)) == before


@pytest.mark.long
def test_a_container_that_leaves_while_it_runs(private_scene: Scene, lan: Lan) -> None:
    """Its lease is released before its link is taken out."""
    scene = private_scene
    lan.start_daemon()
    lan.start_server()
    network = scene.network(scene.configure([MACVLAN]), *SANDBOX)
    container = scene.run(network)
    leased = address(container)
    scene.lab.docker("network", "disconnect", network, container.name)
    lan.wait_released(leased)


@pytest.mark.long
def test_the_host_name(private_scene: Scene, lan: Lan) -> None:
    """The server learns the container's name, if plugins may."""
    scene = private_scene
    lan.start_daemon()
    lan.start_server()
    container = scene.run(scene.network(scene.configure([MACVLAN]), *SANDBOX, "-o", "cni.identity=docker"))
    assert lan.hostnames() == [container.name]


def test_without_the_daemon(private_scene: Scene, lan: Lan) -> None:
    """The container does not start; the error says what to start, and nothing is left."""
    scene = private_scene
    lan.start_server()
    network = scene.network(scene.configure([MACVLAN]), *SANDBOX)
    before = scene.lab.state()
    assert "CNI DHCP daemon does not answer at /run/cni/dhcp.sock" in scene.run_refusal(network)
    assert scene.lab.wait_clean(before) == ""


@pytest.mark.long
def test_a_daemon_that_tries_for_minutes(private_scene: Scene, lan: Lan) -> None:
    """It has its own limits, and no server answers: the start fails before Docker gives up its call, and says why."""
    scene = private_scene
    lan.start_daemon(with_unit=False)
    bridge: JsonObject = {"type": "bridge", "bridge": lan.subnet.bridge, "ipam": IPAM}
    network = scene.network(scene.configure([bridge]), *SANDBOX)
    error = scene.run_refusal(network)
    assert f"{NO_LEASE} within 25 s" in error
    assert f"a server answers on the LAN of {lan.subnet.bridge}" in error
    wait_torn_down(scene.lab)
    scene.lab.run("ip", "link", "del", lan.subnet.bridge)


@pytest.mark.long
def test_another_address_than_before(private_scene: Scene, lan: Lan) -> None:
    """The container keeps its address; the status has the server's, which is released."""
    scene = private_scene
    lab = scene.lab
    lan.start_daemon()
    lan.start_server(first=10, last=10)
    container = scene.run(scene.network(scene.configure([MACVLAN]), *SANDBOX))
    before = address(container)
    lan.stop_daemon()
    lan.stop_server()
    lan.forget_leases()
    lan.start_server(first=20, last=20)
    lan.start_daemon()
    # At first the reason may be that the daemon did not answer yet.
    wait_until(lambda: f"the container has {before}/24" in " ".join(lost(lab)), "the lease of another address", 60)
    assert address(container) == before
    assert lab.run("cni-bridge", "status", check=False).returncode == 1
