# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni.sticky=KEY`: the next container with the key has the addresses and the MAC of the previous one."""

import json
import re
import signal
import sys
from collections.abc import Sequence
from textwrap import dedent

import pytest

from cni_bridge_spec import JsonObject, get_objects, get_str, get_strings
from tests.lab import ADMIN_SOCKET, Container, Lab, wait_until
from tests.lab.fetch_compose import find_fetched_compose
from tests.system.scene import LISTS, Scene, Subnet, bridge, reaches

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


def command(lab: Lab, *words: str, check: bool = True) -> str:
    """Run a command of `cni-bridge`; return what it prints."""
    done = lab.run(sys.executable, "-m", "cnm_bridge", *words, check=check)
    return done.stdout + done.stderr


def holds(lab: Lab) -> Sequence[JsonObject]:
    """Return what `ls --sticky` shows."""
    found: JsonObject = json.loads(command(lab, "ls", "--sticky", "--json"))
    return get_objects(found, "holds")


def remove(lab: Lab, container: Container) -> None:
    """Remove a container, and wait until its endpoint is gone."""
    lab.docker("rm", "-f", container.name)
    wait_until(lambda: all(one["holder"] is None for one in holds(lab)), "no container has a key")


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("move", "ptp"), ("hybrid", "bridge dual stack"), ("direct", "macvlan")],
    indirect=["mode"],
)
def test_the_same_after_a_recreate(scene: Scene, mode: str, kind: str) -> None:
    """Addresses and MAC are the same in each container with the key; others do not get them meanwhile."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(LISTS[kind](subnet)), "-o", f"cni.attach={mode}")
    first = scene.run(sticky(network, "Web"))
    before = facts(first)
    remove(scene.lab, first)
    other = scene.run(network)
    assert facts(other)[0] != before[0]
    second = scene.run(sticky(network, "web"))
    assert facts(second) == before
    assert reaches(other, before[0][0].partition("/")[0])
    scene.lab.docker("rm", "-f", second.name)  # its teardown may still be running
    assert facts(scene.run(sticky(network, "web"))) == before


@pytest.mark.smoke
def test_nobody_else_gets_a_held_address(scene: Scene) -> None:
    """In a pool of two addresses another container gets the other one, and a third one none."""
    network = scene.network(scene.configure(host_local(scene.subnet(), 10, 11)))
    first = scene.run(sticky(network, "web"))
    before = facts(first)
    remove(scene.lab, first)
    assert facts(scene.run(network))[0] != before[0]
    assert "no IP addresses available" in scene.run_refusal(network)
    assert facts(scene.run(sticky(network, "web"))) == before


def test_release(scene: Scene) -> None:
    """`release --sticky` frees what a key has, unless a container has it; removing the network does, too."""
    name = scene.configure(host_local(scene.subnet(), 10, 10))
    network = scene.network(name)
    first = scene.run(sticky(network, "web"))
    assert "key web is in use" in command(scene.lab, "release", "--sticky", "web", check=False)
    remove(scene.lab, first)
    table = command(scene.lab, "ls", "--sticky")
    assert "web" in table
    assert "forever" in table
    metrics = scene.lab.run("curl", "-sf", "--unix-socket", ADMIN_SOCKET, "http://localhost/metrics").stdout
    assert f'cni_bridge_holds{{network="{name}",phase="held"}} 1.0' in metrics
    assert "released key web: 10." in command(scene.lab, "release", "--sticky", "web")
    second = scene.run(network)
    scene.lab.docker("rm", "-f", second.name)
    remove(scene.lab, scene.run(sticky(network, "db")))
    (hold,) = holds(scene.lab)
    assert (get_str(hold, "key"), len(get_strings(hold, "addresses"))) == ("db", 1)
    scene.lab.docker("network", "rm", network)
    wait_until(lambda: not holds(scene.lab), "the network's keys have nothing")


@pytest.mark.slow
def test_expiry(scene: Scene) -> None:
    """After `cni.sticky-for` without a container, a round of comparison releases the address."""
    network = scene.network(scene.configure(host_local(scene.subnet(), 10, 10)), "-o", "cni.sticky-for=1d")
    remove(scene.lab, scene.run(sticky(network, "web", "cni.sticky-for=1s")))
    wait_until(lambda: "for 0s more" in command(scene.lab, "ls", "--sticky"), "it has expired")
    command(scene.lab, "gc")
    wait_until(lambda: not holds(scene.lab), "it is released")
    remove(scene.lab, scene.run(sticky(network, "db")))
    assert re.search("for (1d|23h59m) more", command(scene.lab, "ls", "--sticky"))


def test_refusals(scene: Scene) -> None:
    """A second container with a running key, what cannot be held, and malformed values: each with the reason."""
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    network = scene.network(name)
    first = scene.run(sticky(network, "web"))
    error = scene.run_refusal(sticky(network, "web"))
    assert f"container {first.name}" in error
    assert "has the same key web" in error
    assert "is not a key" in scene.run_refusal(sticky(network, "a/b"))
    assert "give a number with s, m, h or d" in scene.run_refusal(sticky(network, "db", "cni.sticky-for=soon"))
    assert "has no effect without cni.sticky" in scene.run_refusal(f"name={network},driver-opt=cni.sticky-for=1h")
    error = scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={name}", "-o", "cni.sticky=name")
    assert "is an option of containers" in error
    with_pool = scene.docker_network(name, "--subnet", subnet.ipv4, "--gateway", subnet.gateway)
    assert "give --ip" in scene.run_refusal(sticky(with_pool, "web"))
    error = scene.run_refusal(sticky(network, "web", f"cni.ips={subnet.ipv4.replace('0/24', '77')}"))
    assert "`cni-bridge release --sticky web`" in error
    assert len(holds(scene.lab)) == 1


def test_a_container_that_fails_changes_nothing(scene: Scene, mode: str) -> None:
    """If a container could not be attached, a new key has nothing, and another one what it had."""
    scene.plugin("picky", '[ "$CNI_COMMAND" = ADD ] || exit 0; exit 1')
    plugins = bridge(scene.subnet())
    name = scene.configure(plugins)
    network = scene.network(name, "-o", f"cni.attach={mode}")
    first = scene.run(sticky(network, "web"))
    before = facts(first)
    remove(scene.lab, first)
    (had,) = holds(scene.lab)
    scene.configure([*plugins, {"type": "picky"}], name)
    scene.run_refusal(sticky(network, "db"))
    scene.run_refusal(sticky(network, "web", "cni.sticky-for=1s"), "--mac-address", "02:42:ac:11:00:99")
    wait_until(lambda: [one["key"] for one in holds(scene.lab)] == ["web"], "the new key has nothing")
    wait_until(lambda: tuple(holds(scene.lab)) == (had,), "the other key has what it had")
    scene.configure(plugins, name)
    assert facts(scene.run(sticky(network, "web"))) == before


@pytest.mark.slow
def test_changed_ranges(scene: Scene) -> None:
    """A list whose ranges still have the address gives it again; one whose ranges do not is refused."""
    subnet = scene.subnet()
    name = scene.configure(host_local(subnet, 10, 20))
    network = scene.network(name)
    first = scene.run(sticky(network, "web"))
    before = facts(first)
    remove(scene.lab, first)
    scene.configure(host_local(subnet, 10, 30, routes=[{"dst": "192.0.2.0/24"}]), name)
    second = scene.run(sticky(network, "web"))
    assert facts(second) == before
    assert any(route["dst"] == "192.0.2.0/24" for route in second.ip("route"))
    remove(scene.lab, second)
    scene.configure(host_local(subnet, 15, 30), name)
    error = scene.run_refusal(sticky(network, "web"))
    assert "no longer have" in error
    assert "cni-bridge release --sticky web" in error


@pytest.mark.slow
def test_a_reservation_that_the_plugin_has_lost(scene: Scene) -> None:
    """The next container with the key reserves its address again; one that another container has is not given twice."""
    name = scene.configure(host_local(scene.subnet(), 10, 10))
    network = scene.network(name)
    first = scene.run(sticky(network, "web"))
    before = facts(first)
    remove(scene.lab, first)
    data = f"/var/lib/cni/networks/{name}"
    scene.lab.run("rm", "-r", data)
    second = scene.run(sticky(network, "web"))
    assert facts(second) == before
    assert "no IP addresses available" in scene.run_refusal(network)
    remove(scene.lab, second)
    scene.lab.run("rm", "-r", data)
    assert facts(scene.run(network))[0] == before[0]
    error = scene.run_refusal(sticky(network, "web"))
    assert "has the same address that key web has" in error
    assert "cni-bridge release --sticky web" in error


@pytest.mark.slow
def test_an_address_that_the_plugin_refuses(scene: Scene) -> None:
    """A section with which the plugin refuses the address is an error; the key keeps the address."""
    subnet = scene.subnet()
    name = scene.configure(host_local(subnet, 10, 11))
    network = scene.network(name)
    first = scene.run(sticky(network, "web"))
    before = facts(first)
    remove(scene.lab, first)
    scene.configure(host_local(subnet, 10, 11, dataDir="/dev/null"), name)  # where host-local can store nothing
    error = scene.run_refusal(sticky(network, "web"))
    for part in (
        f"key web has {before[0][0]}",
        f"CNI configuration {name}",
        "refuses to reserve that again",
        "they are reserved as before",
    ):
        assert part in error
    assert "cni-bridge release --sticky web" in error
    scene.configure(host_local(subnet, 10, 11), name)
    assert facts(scene.run(network))[0] != before[0]
    assert facts(scene.run(sticky(network, "web"))) == before


def test_compose_recreates(scene: Scene, mode: str) -> None:
    """`docker compose up --force-recreate` keeps addresses and MAC."""
    program = find_fetched_compose()
    if program is None:
        pytest.skip("docker compose is not fetched; run `python -m tests.lab.fetch_compose`")
    network = scene.network(scene.configure(bridge(scene.subnet())), "-o", f"cni.attach={mode}")
    text = f"""
        services:
          web:
            image: busybox
            command: sleep 3600
            stop_grace_period: 0s
            networks: {{ lan: {{ driver_opts: {{ cni.sticky: web }} }} }}
        networks:
          lan: {{ external: true, name: {network} }}
        """
    scene.lab.write("/run/lab/compose.yaml", dedent(text))
    compose = (str(program), "--project-name", "shop", "--file", "/run/lab/compose.yaml")
    try:
        scene.lab.run(*compose, "up", "--detach", "--pull", "never")
        before = facts(scene.lab.container("shop-web-1"))
        scene.lab.run(*compose, "up", "--detach", "--pull", "never", "--force-recreate")
        assert facts(scene.lab.container("shop-web-1")) == before
    finally:
        scene.lab.run(*compose, "down", "--timeout", "0")


def test_across_restarts(private_scene: Scene) -> None:
    """A key keeps its address when the daemon is killed, with and without a container."""
    lab = private_scene.lab
    network = private_scene.network(private_scene.configure(host_local(private_scene.subnet(), 10, 11)))
    first = private_scene.run(sticky(network, "web"))
    before = facts(first)
    lab.restart_daemon(signal.SIGKILL)
    remove(lab, first)
    lab.restart_daemon(signal.SIGKILL)
    private_scene.run(network)
    second = private_scene.run(sticky(network, "web"))
    assert facts(second) == before
