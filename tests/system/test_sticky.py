# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni.sticky=KEY`: the next container with the key gets the addresses and MAC of the last one, if they are free."""

import json
import signal
import sys
from collections.abc import Mapping, Sequence

import pytest

from cni_bridge_spec import JsonObject, find_object, get_object, get_objects, get_str, get_strings
from tests.lab import Container, Lab, wait_until
from tests.system.calls import wait_torn_down
from tests.system.scene import LISTS, Scene, Subnet, bridge, reaches, wait_logged
from tests.system.test_restarts import is_running

MODES = ("move", "hybrid", "direct")


@pytest.fixture(name="mode", params=MODES)
def possible_mode(request: pytest.FixtureRequest) -> str:
    """A mode; those that need the sandbox are skipped on engines that make it after Join."""
    if request.param != "move":
        request.getfixturevalue("sandbox_before_join")
    return str(request.param)


def sticky(network: str, key: str, *options: str) -> str:
    """Return what `--network` needs for a key."""
    return ",".join((f"name={network}", *(f"driver-opt={option}" for option in (f"cni.sticky={key}", *options))))


def host_local(subnet: Subnet, first: int, last: int, **more: Sequence[JsonObject] | str) -> Sequence[JsonObject]:
    """Return a list with the subnet's addresses from `first` to `last`, and more keys in its IPAM section."""
    start = subnet.ipv4.removesuffix("0/24")
    ranges: JsonObject = {"subnet": subnet.ipv4, "rangeStart": f"{start}{first}", "rangeEnd": f"{start}{last}"}
    main, firewall = bridge(subnet)
    return {**main, "ipam": {"type": "host-local", "ranges": [[ranges]], **more}}, firewall


def facts(container: Container) -> tuple[Sequence[str], str]:
    """Return the container's addresses and its MAC."""
    link = container.link()
    return sorted(str(one) for one in link.addresses if not one.is_link_local), link.mac


def ip_of(container: Container) -> str:
    """Return the container's first address, without its prefix."""
    return facts(container)[0][0].partition("/")[0]


def command(lab: Lab, *words: str, check: bool = True) -> str:
    """Run a command of `cni-bridge`; return what it prints."""
    done = lab.run(sys.executable, "-m", "cnm_bridge", *words, check=check)
    return done.stdout + done.stderr


def missed(lab: Lab) -> Mapping[str, Sequence[str]]:
    """Return which addresses of the last container with its key each container has not, as `ls` shows it."""
    shown: JsonObject = json.loads(command(lab, "ls", "--json"))
    return {
        get_str(get_object(one, "container"), "name"): get_strings(found, "missed")
        for one in get_objects(shown, "endpoints")
        if (found := find_object(one, "sticky")) is not None
    }


def remove(lab: Lab, container: Container) -> None:
    """Remove a container, and wait until its endpoint is torn down."""
    lab.docker("rm", "-f", container.name)
    wait_torn_down(lab)


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("move", "ptp"), ("move", "bridge"), ("hybrid", "bridge dual stack"), ("direct", "macvlan")],
    indirect=["mode"],
)
@pytest.mark.representatives("hybrid-bridge dual stack")
def test_the_same_after_a_recreate(scene: Scene, mode: str, kind: str) -> None:
    """Addresses and MAC are the same in the next container with the key, however soon it comes."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(LISTS[kind](subnet)), mode=mode)
    first = scene.run(sticky(network, "Web"))
    before = facts(first)
    remove(scene.lab, first)
    other = scene.run(network)
    assert facts(other)[0] != before[0]
    second = scene.run(sticky(network, "web"))
    assert facts(second) == before
    assert reaches(other, ip_of(second))
    scene.lab.docker("rm", "-f", second.name)  # its teardown may still be running
    third = scene.run(sticky(network, "web"))
    assert facts(third) == before
    assert missed(scene.lab)[third.name] == ()


@pytest.mark.smoke
@pytest.mark.representatives("move", "hybrid")
def test_nothing_is_reserved_without_a_container(scene: Scene, mode: str) -> None:
    """Another container may get the address; the next one with the key gets another, and `ls` and the log say so."""
    name = scene.configure(host_local(scene.subnet(), 10, 11))
    network = scene.network(name, mode=mode)
    first = scene.run(sticky(network, "web"))
    before, taken = facts(first), ip_of(first)
    remove(scene.lab, first)
    others = [scene.run(network) for _ in range(2)]
    remove(scene.lab, next(one for one in others if ip_of(one) != taken))
    second = scene.run(sticky(network, "web"))
    assert ip_of(second) != taken
    assert facts(second)[1] == before[1]
    assert missed(scene.lab)[second.name] == (taken,)
    assert f"web (not {taken})" in command(scene.lab, "ls", "--no-trunc")
    assert "endpoint.address_not_kept" in wait_logged(scene.lab, f'"last": ["{taken}"]')
    assert "no IP addresses available" in scene.run_refusal(sticky(network, "db"))


@pytest.mark.representatives("direct")
def test_a_key_of_two_containers(scene: Scene, mode: str) -> None:
    """The second one gets another address and another MAC, and both work."""
    network = scene.network(scene.configure(host_local(scene.subnet(), 10, 20)), mode=mode)
    first = scene.run(sticky(network, "web"))
    remove(scene.lab, first)
    first, second = (scene.run(sticky(network, "web")) for _ in range(2))
    assert ip_of(first) != ip_of(second)
    assert facts(first)[1] != facts(second)[1]
    assert missed(scene.lab) == {first.name: (), second.name: (ip_of(first),)}
    assert reaches(first, ip_of(second))


@pytest.mark.long
def test_another_network_with_the_same_list(scene: Scene) -> None:
    """A key belongs to the list, so it survives `docker network rm`."""
    name = scene.configure(host_local(scene.subnet(), 10, 20))
    network = scene.network(name)
    first = scene.run(sticky(network, "web"))
    before = facts(first)
    remove(scene.lab, first)
    scene.lab.docker("network", "rm", network)
    assert facts(scene.run(sticky(scene.network(name), "web"))) == before


def test_a_network_with_addresses_of_docker(scene: Scene) -> None:
    """A key is refused with the reason."""
    subnet = scene.subnet()
    network = scene.docker_network(
        scene.configure(bridge(subnet)), "--subnet", subnet.ipv4, "--gateway", subnet.gateway
    )
    assert "give --ip" in scene.run_refusal(sticky(network, "web"))


@pytest.mark.long
def test_a_container_that_fails_changes_nothing(scene: Scene, mode: str) -> None:
    """The next one with the key gets what the last one that ran had."""
    scene.plugin("picky", '[ "$CNI_COMMAND" = ADD ] || exit 0; exit 1')
    plugins = host_local(scene.subnet(), 10, 20)
    name = scene.configure(plugins)
    network = scene.network(name, mode=mode)
    first = scene.run(sticky(network, "web"))
    before = facts(first)
    remove(scene.lab, first)
    scene.configure([*plugins, {"type": "picky"}], name)
    scene.run_refusal(sticky(network, "web"))
    scene.configure(plugins, name)
    assert facts(scene.run(sticky(network, "web"))) == before


@pytest.mark.long
def test_across_restarts(private_scene: Scene) -> None:
    """A key is remembered when the daemon is killed, with and without a container, and when the engine is."""
    lab = private_scene.lab
    network = private_scene.network(private_scene.configure(host_local(private_scene.subnet(), 10, 20)))
    first = private_scene.run(sticky(network, "web"), "--restart", "always")
    before = facts(first)
    lab.restart_daemon(signal.SIGKILL)
    lab.restart_dockerd(signal.SIGKILL)
    wait_until(lambda: is_running(lab, first.name), "it runs again")
    assert facts(first) == before
    remove(lab, first)
    lab.restart_daemon(signal.SIGKILL)
    private_scene.run(network)
    assert facts(private_scene.run(sticky(network, "web"))) == before
