# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""On a healthy host, of whatever kind, no command reports anything.

Each test is a kind of host, with as many kinds of networks and containers as it can have together.
"""

from collections.abc import Sequence
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Engine, Lab, wait_until
from tests.system.plugin_lists import PORTMAP, v4
from tests.system.scene import Scene, bridge, macvlan, ptp
from tests.system.test_beside_a_kubelet import CACHE, Pods

pytestmark = pytest.mark.timeout(300)  # many containers, and two more for each network that is tested

LOOKING: Final = (
    *(("inspect", "--check"), ("doctor",), ("doctor", "--quick"), ("status", "--wait", "30"), ("cleanup", "--run")),
)
LIMITS: Final[JsonObject] = {"type": "bandwidth", "capabilities": {"bandwidth": True}}


def reports(lab: Lab, *networks: str) -> list[str]:
    """Return what the commands report, `test` on these networks among them; nothing for a healthy host."""
    found = []
    for command in (*LOOKING, *(("test", one) for one in networks)):
        done = lab.run("cni-bridge", *command, check=False, timeout_s=120)
        is_silent = done.returncode == 0 and not done.stderr and "fix:" not in done.stdout
        if not is_silent or (command == ("doctor",) and "\nnothing found; " not in done.stdout):
            found.append(f"$ cni-bridge {' '.join(command)} → {done.returncode}\n{done.stdout}{done.stderr}")
    return found


def only(subnet: str, *, default: str) -> JsonObject:
    """The addresses of one family."""
    return {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": default}]}


def with_ipam(plugins: Sequence[JsonObject], ipam: JsonObject | None) -> Sequence[JsonObject]:
    """Return plugins of which the first has another IPAM section, or none."""
    main, *others = plugins
    document = {key: value for key, value in main.items() if key != "ipam"}
    return (document if ipam is None else {**document, "ipam": ipam}), *others


def has_vlans(lab: Lab) -> bool:
    """Return whether the kernel has VLANs, on links and on bridges."""
    made = [
        lab.run("ip", "link", "add", "probe0", *options, check=False).returncode == 0
        and lab.run("ip", "link", "del", "probe0").returncode == 0
        for options in (
            ("link", Scene.UPLINK, "type", "vlan", "id", "9"),
            ("type", "bridge", "vlan_filtering", "1"),
        )
    ]
    return all(made)


def kinds(scene: Scene) -> dict[str, Sequence[JsonObject]]:
    """Return lists of many kinds."""
    on_lan, of_ipv6 = scene.subnet(), scene.subnet()
    scene.lab.run("ip", "address", "add", f"{on_lan.gateway}/24", "dev", f"{scene.UPLINK}-end")  # the LAN's router
    switch: JsonObject = {"type": "bridge", "bridge": scene.subnet().bridge}
    made: dict[str, Sequence[JsonObject]] = {
        "dual stack": (*bridge(scene.subnet(), ipv6=True), PORTMAP, LIMITS),
        "ptp": ptp(scene.subnet(), ipv6=True),
        "macvlan": macvlan(on_lan),
        "IPv6 only": with_ipam(bridge(of_ipv6), only(of_ipv6.ipv6, default="::/0")),
        "source routing": (*bridge(scene.subnet()), {"type": "sbr"}),
        "tuned": (*bridge(scene.subnet()), {"type": "tuning", "mtu": 1400}),
        "no addresses": (switch,),
    }
    return made | (vlans(scene) if has_vlans(scene.lab) else {})


def vlans(scene: Scene) -> dict[str, Sequence[JsonObject]]:
    """Return lists with a VLAN of the uplink, and of a bridge."""
    (on_uplink,) = macvlan(scene.subnet())
    tagged, firewall = bridge(scene.subnet())
    return {
        "VLAN": ({**on_uplink, "type": "vlan", "vlanId": 7},),
        "VLAN of a bridge": ({**tagged, "vlan": 12}, firewall),
    }


@pytest.mark.long
def test_networks_of_many_kinds(private_scene: Scene, engine: Engine) -> None:
    """With containers on each, on several, on one more later, with given MACs and addresses, and published ports."""
    scene, lab = private_scene, private_scene.lab
    networks = {kind: scene.network(scene.configure(plugins)) for kind, plugins in kinds(scene).items()}
    for network in networks.values():
        scene.run(network)
    for kind in ("dual stack", "ptp", "macvlan"):
        scene.run(networks[kind], "--mac-address=02:42:ac:00:00:07")
    scene.run(networks["dual stack"], "-p", "8621:80")
    fixed = scene.subnet()
    docker = scene.docker_network(scene.configure((*bridge(fixed), PORTMAP)), "--subnet", fixed.ipv4)
    scene.run(docker, "--ip", v4(fixed, 9).partition("/")[0], "-p", "8622:80")
    scene.run(scene.builtin_network(), "-p", "8623:80")
    several = scene.run(networks["dual stack"])
    for kind in ("ptp", "macvlan", "IPv6 only"):
        lab.docker("network", "connect", networks[kind], several.name)
    later = scene.create(networks["tuned"])
    lab.docker("network", "connect", networks["dual stack"], later)
    lab.docker("start", later)
    tested = [networks["dual stack"], networks["ptp"], networks["macvlan"], docker]
    if engine.version >= (28,):  # before, `test` may look for an address before IPv6 alone is set up
        tested.append(networks["IPv6 only"])
    assert not reports(lab, *tested)


@pytest.mark.long
def test_networks_that_take_their_list_by_name(private_scene: Scene) -> None:
    """By their own, and by that in a compose file, before and after the first container; one without is named."""
    scene, lab = private_scene, private_scene.lab
    own, of_compose = (scene.configure(bridge(scene.subnet())) for _ in range(2))
    networks = [
        scene.network(None, name=own),
        scene.network(None, "--label", f"com.docker.compose.network={of_compose}", name=f"shop_{of_compose}"),
    ]
    assert not reports(lab)
    for network in networks:
        scene.run(network)
    assert not reports(lab)
    alone = scene.network(None, name="alone")
    status = lab.run("cni-bridge", "status", check=False)
    assert (status.returncode, status.stdout.startswith("attention: 1 network without a list: ")) == (1, True)
    assert ["alone", "alone"] in [line.split() for line in status.stdout.splitlines()]
    lab.docker("network", "rm", alone)
    assert not reports(lab)


@pytest.mark.long
def test_a_host_without_ipv6(private_scene: Scene) -> None:
    """The kernel has it, and it is switched off."""
    for name in ("all", "default"):
        private_scene.lab.run("sysctl", "-w", f"net.ipv6.conf.{name}.disable_ipv6=1")
    for plugins in ((*bridge(private_scene.subnet()), PORTMAP), ptp(private_scene.subnet())):
        network = private_scene.network(private_scene.configure(plugins))
        private_scene.run(network, *(("-p", "8624:80") if PORTMAP in plugins else ()))
    assert not reports(private_scene.lab, network)


@pytest.mark.parametrize("routes", [("0.0.0.0/1", "128.0.0.0/1"), ("10.0.0.0/8",)], ids=["everything", "company"])
@pytest.mark.representatives("company")
def test_a_host_in_a_vpn(private_scene: Scene, routes: Sequence[str]) -> None:
    """Its routes cover every subnet, and a network is made all the same."""
    scene, lab = private_scene, private_scene.lab
    lab.run("ip", "address", "add", "10.8.0.2/24", "dev", scene.UPLINK)
    for route in routes:
        lab.run("ip", "route", "add", route, "via", "10.8.0.1", "dev", scene.UPLINK)
    scene.shell("cni-bridge network create blue --subnet 10.22.0.0/16 --subnet fd22::/64")
    scene.run("blue")
    assert not reports(lab, "blue")


@pytest.mark.long
def test_an_engine_that_was_restarted(private_scene: Scene) -> None:
    """With containers that it starts again, and without; and so was the daemon."""
    scene, lab = private_scene, private_scene.lab
    network = scene.network(scene.configure((*bridge(scene.subnet(), ipv6=True), PORTMAP)))
    again = scene.run(network, "--restart", "always", "-p", "8625:80").name
    scene.run(network)
    lab.restart_dockerd()
    wait_until(lambda: again in lab.docker("ps", "--format", "{{.Names}}").split(), "the container")
    assert not reports(lab)
    lab.restart_daemon()
    assert not reports(lab)


@pytest.mark.long
def test_containers_of_another_runtime(private_scene: Scene) -> None:
    """Some share a list with Docker, and some have one of their own."""
    scene, lab = private_scene, private_scene.lab
    shared, own = (scene.configure((*bridge(scene.subnet()), PORTMAP)) for _ in range(2))
    scene.run(scene.network(shared), "-p", "8626:80")
    pods = [Pods(lab, name) for name in (shared, own)]
    try:
        for one, name in zip(pods, ("first", "second"), strict=True):
            one.start(name)
        assert not reports(lab)
    finally:
        for one in pods:
            one.stop_all()
        lab.remove(CACHE)
