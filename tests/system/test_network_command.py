# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge network`: one command to a network that works, on every engine, and one that removes all of it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str, get_strings
from tests.lab import CommandFailed, Container, Engine, Lab
from tests.system.dhcp_lan import Lan
from tests.system.peer import HOST_IP, OUTSIDE_IP, ask, outside, serving
from tests.system.scene import Scene, bridge, reaches

NETWORK = (sys.executable, "-m", "cnm_bridge", "network")
DIRECTORY = "/etc/cni/net.d"

_numbers = count(1)


def command(lab: Lab, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command, whatever its exit status is."""
    return lab.run(*NETWORK, *arguments, check=False)


def seen(lab: Lab) -> tuple[object, ...]:
    """Return what the command could change."""
    files = lab.run("sh", "-c", f"[ ! -d {DIRECTORY} ] || find {DIRECTORY} -type f").stdout.split()
    state = lab.state()
    return sorted(files), state.networks, state.links


def listed(lab: Lab, name: str) -> JsonObject:
    """Return the list that the command has written."""
    document: JsonObject = json.loads(lab.run("cat", f"{DIRECTORY}/{name}.conflist").stdout)
    return document


def addresses(container: Container) -> list[str]:
    """Return the global addresses of a container's only link, IPv4 first."""
    found = sorted(container.link().addresses, key=lambda one: one.version)
    return [str(one.ip) for one in found if not one.ip.is_link_local]


@pytest.fixture(name="make")
def make_networks(scene: Scene) -> Iterator[Callable[..., str]]:
    """Makes networks with their lists, which are removed at the end; returns the name."""
    made = []

    def make(*arguments: str) -> str:
        name = f"made{next(_numbers)}"
        done = command(scene.lab, "create", name, *arguments)
        assert done.returncode == 0, done.stderr
        scene.adopt_network(name)
        scene.adopt_file(f"{DIRECTORY}/{name}.conflist")
        made.append(f"cni-{name}")
        return name

    yield make
    for link in made:
        scene.lab.run("ip", "link", "del", link, check=False)


@pytest.mark.parametrize("families", [(4,), (4, 6)])
@pytest.mark.representatives("families1")
def test_from_a_subnet_to_a_published_port(
    scene: Scene, make: Callable[..., str], engine: Engine, families: tuple[int, ...]
) -> None:
    """Containers reach each other and the outside, and are reached by their ports; then nothing is left."""
    lab, subnet = scene.lab, scene.subnet()
    before = seen(lab)
    given = [option for version in families for option in ("--subnet", subnet.ipv4 if version == 4 else subnet.ipv6)]
    name = make(*given)
    assert lab.path(f"{DIRECTORY}/{name}.conflist").stat().st_mode & 0o777 == 0o644
    assert [get_str(plugin, "type") for plugin in get_objects(listed(lab, name), "plugins")] == [
        *("bridge", "firewall", "portmap")
    ]
    web, client = scene.run(name, "-p", "8701:80"), scene.run(name)
    assert len(addresses(web)) == len(families)
    for address in addresses(web):
        assert reaches(client, address), f"{address} on Engine {engine.name}"
    with serving(lab, web, 80), outside(lab) as there:
        assert ask(lab, client, addresses(web)[0], 80) == web.name
        assert ask(lab, None, "127.0.0.1", 8701) == web.name
        assert ask(lab, there, HOST_IP, 8701) == web.name
        assert reaches(client, OUTSIDE_IP)
    in_use = command(lab, "rm", "--configuration", name)
    assert (in_use.returncode, web.name in in_use.stderr, "docker network disconnect" in in_use.stderr) == (
        1,
        True,
        True,
    )
    lab.docker("rm", "-f", web.name, client.name)
    done = command(lab, "rm", "--configuration", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"Docker network {name} was removed",
        f"{DIRECTORY}/{name}.conflist was removed",
        f"bridge cni-{name} was removed",
    ]
    assert seen(lab) == before
    unknown = command(lab, "rm", "--configuration", name)
    assert (unknown.returncode, f"Docker has no network {name}" in unknown.stderr) == (2, True)


def test_ipv6_alone(scene: Scene, make: Callable[..., str]) -> None:
    """No IPv4 is needed, whatever Docker has by default."""
    subnet = scene.subnet()
    name = make("--subnet", subnet.ipv6, "--gateway", f"{subnet.gateway_ipv6}0")
    one, other = scene.run(name), scene.run(name)
    (address,) = addresses(other)
    assert reaches(one, address)
    assert reaches(one, f"{subnet.gateway_ipv6}0")


def test_what_it_shows_is_what_it_does(scene: Scene, make: Callable[..., str]) -> None:
    """The commands that a dry run prints, pasted into a shell, make the same network; the dry run changes nothing."""
    lab, subnet = scene.lab, scene.subnet()
    name = f"shown{next(_numbers)}"
    given = (name, "--subnet", subnet.ipv4, "--range", f"10.80.{subnet.number}.64/26", "--mtu", "1400")
    before = seen(lab)
    shown = command(lab, "create", "--dry-run", *given)
    document = json.loads(command(lab, "create", "--dry-run", "--json", *given).stdout)
    assert (shown.returncode, seen(lab)) == (0, before), shown.stderr
    assert "\n".join(get_strings(document, "commands")) == shown.stdout.strip()
    scene.adopt_network(name)
    scene.adopt_file(f"{DIRECTORY}/{name}.conflist")
    lab.run("sh", "-e", "-c", shown.stdout)
    assert listed(lab, name) == document["list"]
    container = scene.run(name)
    assert addresses(container) == [f"10.80.{subnet.number}.64"]
    lab.docker("rm", "-f", container.name)
    refused = command(lab, "create", *given)
    assert refused.returncode == 1
    lines = refused.stderr.splitlines()
    assert len(lines) == 1, refused.stderr  # neither its bridge nor its range is reported as well
    assert f"already exists, with its list in {DIRECTORY}/{name}.conflist" in lines[0]
    assert f"cni-bridge network rm --configuration {name}" in lines[0]
    second = scene.network(name)
    shared = command(lab, "rm", "--configuration", name)
    assert (shared.returncode, second in shared.stderr) == (1, True)
    lab.docker("network", "rm", second)
    lab.run("ip", "link", "del", f"cni-{name}", check=False)
    twin = make("--subnet", scene.subnet().ipv4, "-o", "cni.ifname-prefix=net")
    assert scene.run(twin).link("net0").mtu == 1500


@pytest.mark.long
def test_on_a_parent(scene: Scene, make: Callable[..., str]) -> None:
    """Containers are on the LAN of the parent, whose own subnet is no collision."""
    lab, subnet = scene.lab, scene.subnet()
    lab.run("ip", "address", "add", f"10.80.{subnet.number}.200/24", "dev", scene.UPLINK)
    lan = ("--parent", scene.UPLINK, "--subnet", subnet.ipv4)
    own = command(lab, "create", "refused", *lan)
    assert (own.returncode, f"the host's own address 10.80.{subnet.number}.200 on uplink0" in own.stderr) == (1, True)
    prefix = f"10.80.{subnet.number}"
    one, other = make(*lan, "--range", f"{prefix}.16/29"), make(*lan, "--range", f"{prefix}.32-{prefix}.39")
    here, there = scene.run(one), scene.run(other)
    assert [*addresses(here), *addresses(there)] == [f"{prefix}.16", f"{prefix}.32"]
    assert reaches(here, f"{prefix}.32")
    assert f"default via {subnet.gateway}" in here.in_network("ip", "route").stdout


@pytest.mark.long
@pytest.mark.usefixtures("sandbox_before_join")
def test_dhcp(private_scene: Scene) -> None:
    """The LAN's server gives the address; without the DHCP daemon nothing is made."""
    lab = private_scene.lab
    lan = Lan(lab, private_scene.subnet())
    try:
        before = seen(lab)
        refused = command(lab, "create", "leased", "--parent", Scene.UPLINK, "--dhcp")
        assert (refused.returncode, "systemctl enable --now cni-bridge-dhcp" in refused.stderr) == (1, True)
        assert seen(lab) == before
        lan.start_daemon()
        lan.start_server()
        private_scene.adopt_network("leased")
        private_scene.adopt_file(f"{DIRECTORY}/leased.conflist")
        done = command(lab, "create", "leased", "--parent", Scene.UPLINK, "--dhcp")
        assert done.returncode == 0, done.stderr
        container = private_scene.run("leased")
        (leased,) = lan.leases()
        assert addresses(container) == [leased]
        lab.docker("rm", "-f", container.name)
        lan.wait_released(leased)
    finally:
        lan.close()


def test_dhcp_before_engine_28(scene: Scene, engine: Engine) -> None:
    """It is refused, because the sandbox does not exist when the lease is needed."""
    if engine.version >= (28,):
        pytest.skip("this engine makes the sandbox before Join")
    done = command(scene.lab, "create", "leased", "--parent", Scene.UPLINK, "--dhcp")
    assert (done.returncode, "needs Docker Engine 28 or newer" in done.stderr) == (1, True)


@pytest.mark.long
def test_an_isolated_network(scene: Scene, make: Callable[..., str]) -> None:
    """Its containers reach each other, and neither the host nor the outside; a port is not published."""
    subnet = scene.subnet()
    name = make("--isolated", "--subnet", subnet.ipv4)
    one, other = scene.run(name), scene.run(name)
    assert reaches(one, addresses(other)[0])
    with outside(scene.lab):
        for address in (subnet.gateway, HOST_IP, OUTSIDE_IP):
            with pytest.raises(CommandFailed):
                one.exec("ping", "-c", "1", "-w", "2", address)
    assert "default" not in one.in_network("ip", "route").stdout


@pytest.mark.long
def test_without_masquerading(scene: Scene, make: Callable[..., str]) -> None:
    """The outside sees the container's own address, and needs a route to answer."""
    lab, subnet = scene.lab, scene.subnet()
    container = scene.run(make("--no-masquerade", "--subnet", subnet.ipv4))
    with outside(lab) as there:
        with pytest.raises(CommandFailed):
            container.exec("ping", "-c", "1", "-w", "2", OUTSIDE_IP)
        lab.run(*there, "ip", "route", "add", subnet.ipv4, "via", HOST_IP)
        assert reaches(container, OUTSIDE_IP)


@pytest.mark.long
def test_a_bridge_with_other_links_is_kept(scene: Scene, make: Callable[..., str]) -> None:
    """It may be in use by others; list and Docker network are removed all the same."""
    lab = scene.lab
    name = make("--subnet", scene.subnet().ipv4)
    container = scene.run(name)
    lab.run("ip", "link", "set", Scene.UPLINK, "master", f"cni-{name}")
    lab.docker("rm", "-f", container.name)
    done = command(lab, "rm", "--configuration", name)
    assert done.returncode == 0, done.stderr
    assert f"bridge cni-{name} was kept, because it has links: {Scene.UPLINK}" in done.stdout
    assert not lab.path(f"{DIRECTORY}/{name}.conflist").exists()


@pytest.mark.long
def test_isolation_goes_with_the_network(scene: Scene) -> None:
    """The rules of its bridge are removed; those of another network stay."""
    lab = scene.lab
    policy: JsonObject = {"type": "firewall", "ingressPolicy": "same-bridge"}
    subnets = (scene.subnet(), scene.subnet())
    one, other = (scene.configure((bridge(subnet)[0], policy)) for subnet in subnets)
    for name in (one, other):
        assert command(lab, "create", name).returncode == 0
        lab.docker("rm", "-f", scene.run(name).name)

    def counted() -> list[int]:
        saved = lab.run("iptables-save", "--table", "filter").stdout
        return [saved.count(f" {subnet.bridge} ") for subnet in subnets]

    assert counted() == [3, 3]  # two rules, one of which has the name twice
    assert "2 rules in CNI-ISOLATION-STAGE-1 and" in command(lab, "rm", "--configuration", one).stdout
    assert counted() == [0, 3]
    assert command(lab, "rm", "--configuration", other).returncode == 0


def test_what_an_operator_should_know(scene: Scene) -> None:
    """On a LAN others have addresses, too."""
    lan = ("--parent", Scene.UPLINK, "--subnet", scene.subnet().ipv4)
    done = command(scene.lab, "create", "--dry-run", "aardvark", *lan)
    assert done.returncode == 0
    assert f"if others on the LAN of {Scene.UPLINK} have some" in done.stderr


def test_docker_refuses(scene: Scene) -> None:
    """An option that no plugin of the new list understands is refused by the driver; the list is removed again."""
    lab = scene.lab
    before = seen(lab)
    done = command(lab, "create", "limited", "--subnet", scene.subnet().ipv4, "-o", "cni.capability.colour=1")
    assert done.returncode == 1
    assert "colour" in done.stderr
    assert f"{DIRECTORY}/limited.conflist was removed again" in done.stderr
    assert seen(lab) == before
